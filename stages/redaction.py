"""Takes secrets out of texts before they leave (C23)."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import re2
from pydantic import BaseModel, ConfigDict, Field, field_validator

from contracts.hits import Level
from stages.secret_patterns import RULES, Rule, Secret

# A secret that begins before a cut is looked at this far beyond it: longer than any private key.
_BEYOND = 16_384
# Characters of a value that its check looks at.
_CHECKED = 256
# A mask may complete what another pattern looks for.
_ROUNDS = 8


class RedactionConfig(BaseModel):
    """Which texts are masked, and for what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: tuple[Level, ...] = Field(
        ("L2",), description="Levels that are masked: L2 always, L0 and L1 where those may hold secrets too."
    )
    patterns: dict[str, str] = Field(
        {}, description="Further secrets by name, in RE2's syntax; the group secret is masked, or else the whole match."
    )
    mask: str = Field("[redacted]", min_length=1, max_length=32, description="What stands in place of a secret.")

    @field_validator("levels")
    @classmethod
    def _always_l2(cls, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        if "L2" not in levels:
            raise ValueError("L2 is always redacted")
        return levels

    @field_validator("patterns")
    @classmethod
    def _usable(cls, patterns: dict[str, str]) -> dict[str, str]:
        for name, pattern in patterns.items():
            try:
                empty = _compile(pattern).search("")
            except re2.error as error:
                raise ValueError(f"RE2 does not take the pattern {name}: {error.args[0].decode()}") from None
            if empty:
                raise ValueError(f"the pattern {name} matches the empty text")
        return patterns


class Redactor:
    """Masks secrets, in time linear in the text, whatever the text and the patterns.

    Args:
        config: Which texts, and for what besides ``stages.secret_patterns``.
    """

    def __init__(self, config: RedactionConfig) -> None:
        self._levels = frozenset(config.levels)
        self._mask = config.mask
        self._rules = [_Finder(rule) for rule in RULES.values()]
        self._own = [_Finder(Rule(pattern)) for pattern in config.patterns.values()]
        # One pass over the text tells which rules can match at all: mostly none.
        self._any = re2.Set.SearchSet(_options())
        for rule in RULES.values():
            self._any.Add(rule.pattern)
        self._any.Compile()

    def redact(self, text: str) -> str:
        """The text with its secrets masked; to redact it again changes nothing."""
        for _ in range(_ROUNDS):
            before, text = text, self._masked(text, len(text))
            if text == before:
                break
        return text

    def shown(self, text: str, level: Level) -> str:
        """A text of a level as it may leave."""
        return self.redact(text) if level in self._levels else text

    def excerpt(self, text: str, level: Level, limit: int) -> str:
        """The start of a text as it may leave: at most ``limit`` characters, the last an ellipsis when it is cut.

        A secret that goes on beyond the cut is masked as a whole.
        """
        whole = len(text) <= limit
        if level in self._levels:
            text = self.redact(self._masked(text[: limit + _BEYOND], limit))
        return text if whole and len(text) <= limit else f"{text[: limit - 1]}…"

    def _masked(self, text: str, end: int) -> str:
        """The first ``end`` characters, with a mask for each secret that begins in them."""
        parts: list[str] = []
        at = 0
        for start, stop in sorted(span for span in self._spans(text) if span[0] < end):
            if start > at or not parts:
                parts += text[at:start], self._mask
            at = max(at, stop)
        return "".join([*parts, text[at:end]])

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and stop of each secret; what lies in a mask is none, so that masks are not masked again."""
        width = len(self._mask)
        likely = (self._rules[number] for number in self._any.Match(text) or ())
        for start, stop in chain.from_iterable(finder.spans(text) for finder in (*likely, *self._own)):
            if text.find(self._mask, max(0, stop - width), start + width) < 0:
                yield start, stop


class _Finder:
    """Finds the secrets of one rule."""

    def __init__(self, rule: Rule) -> None:
        self._pattern = _compile(rule.pattern)
        self._check = rule.check
        self._groups = dict(self._pattern.groupindex)
        self._secret = self._groups.pop("secret", 0)
        for name in self._groups.keys() - set(Secret._fields):
            del self._groups[name]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        for match in self._pattern.finditer(text):
            start, stop = match.span(self._secret)
            # Of alternatives, only some may have the group.
            start, stop = (start, stop) if start >= 0 else match.span()
            beside = {name: match.group(group) or "" for name, group in self._groups.items()}
            if start < stop and self._check(Secret(text[start : min(stop, start + _CHECKED)], **beside)):
                yield start, stop


def _compile(pattern: str) -> Any:
    return re2.compile(pattern, _options())


def _options() -> Any:
    options = re2.Options()
    # Errors reach the caller as exceptions; they need not be on the standard error too.
    options.log_errors = False
    return options
