"""Makes the L0 abstracts and L1 overviews that a source does not give: extractive and deterministic.

* L0: a text that is short enough is its own abstract. Of a longer one, each sentence of its prose (no headings, code,
  tables) is scored ``lead + centrality``: lead falls off as 1 / position; centrality is how many other sentences share
  its terms, by the root of its length, 1 for the most central one; questions and very short ones come last. The best
  sentence, and the next best when both fit, stand in the order of the text.
* L1: an outline, one line a heading, child or paragraph, each with its first sentence; when that is too long, the
  sentences are cut shorter and shorter, then the deepest lines go, then the last.

Only the first ``MAX_SENTENCES`` are looked at, so the time is linear in the length of a text.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from index.blocks import blocks, plain
from index.chunker import count_tokens, sentences
from index.text import analyze

MAX_SENTENCES = 60
_LEAST_TOKENS = 8
_LINE_TOKENS = 40
# How much of a sentence an outline keeps, from roomy to titles alone.
_WIDTHS = (_LINE_TOKENS, 20, 10, 0)
_JOINTS = " ,;:，；：、"
_FULL_WIDTH_ENDS = "。！？…”’」』）】》"


class AbstractOptions(BaseModel):
    """How long the abstracts and overviews made here are, in tokens as ``count_tokens`` estimates them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    abstract_tokens: int = Field(80, ge=8, description="Most of an L0. Longer: more to match, dearer to rerank.")
    overview_tokens: int = Field(400, ge=16, description="Most of an L1. Longer: fewer L2 reads, dearer L1 reads.")


class Entry(NamedTuple):
    """A line of an outline: a title, what it says first, and how deep it lies (0 is the top)."""

    title: str
    text: str = ""
    level: int = 0


def abstract(text: str, options: AbstractOptions | None = None, lead: float = 1.0) -> str:
    """The L0 of a text: its best one or two sentences, on one line.

    Args:
        text: Markdown or plain text, Chinese or English.
        options: Sizes.
        lead: Weight of coming early, beside 1 for centrality; 0 suits dialogues, which open with greetings.

    Returns:
        At most ``abstract_tokens``; empty for blank text.
    """
    limit = (options or AbstractOptions()).abstract_tokens
    prose = _prose(text)
    whole = " ".join(prose) or plain(text)
    if count_tokens(whole) <= limit:
        return whole
    spoken = [part[start:end] for part in prose or [text] for start, end in sentences(part)]
    chosen: list[int] = []
    for position in _ranked(spoken[:MAX_SENTENCES], lead):
        if not chosen or count_tokens(spoken[chosen[0]]) + count_tokens(spoken[position]) <= limit:
            chosen.append(position)
        if len(chosen) == 2:  # noqa: PLR2004 - one or two sentences
            break
    return clip(_joined(spoken[position] for position in sorted(chosen)), limit)


def overview(text: str, options: AbstractOptions | None = None) -> str:
    """The L1 of a text by itself: its headings and the first sentence of each paragraph; empty for blank text."""
    entries: list[Entry] = []
    for block in blocks(text):
        if block.kind == "heading" and block.title:
            entries.append(Entry(block.title, level=0))
        elif block.kind in {"prose", "item"}:
            entries.append(Entry("", text[block.start : block.end], level=1))
    return outline(entries, options)


def outline(entries: Sequence[Entry], options: AbstractOptions | None = None) -> str:
    """An L1 made of titles and what they say first, as an indented list.

    Args:
        entries: In order; blank ones are left out.
        options: Sizes.

    Returns:
        At most ``overview_tokens`` and a closing line that counts what was left out; empty for no entries.
    """
    limit = (options or AbstractOptions()).overview_tokens
    entries = [entry._replace(text=first_sentence(entry.text)) for entry in entries]
    entries = [entry for entry in entries if entry.title or entry.text]
    kept = next((form for form in _forms(entries) if sum(map(_cost, form)) <= limit), [])
    top = min((entry.level for entry in kept), default=0)
    lines = ["  " * (entry.level - top) + "- " + _line(entry) for entry in kept]
    return "\n".join([*lines, f"… and {len(entries) - len(kept)} more"] if len(kept) < len(entries) else lines)


def _forms(entries: list[Entry]) -> Iterator[list[Entry]]:
    """An outline, longer forms before shorter ones."""
    form = entries
    for width in _WIDTHS:
        form = [each._replace(text=_narrow(each, width)) for each in entries]
        yield form
    for level in sorted({entry.level for entry in entries}, reverse=True)[:-1]:
        form = [entry for entry in form if entry.level < level]
        yield form
    while form:
        form = form[: -max(1, len(form) // 8)]
        yield form


def first_sentence(text: str, tokens: int = _LINE_TOKENS) -> str:
    """The first sentence of a text without markup, at most ``tokens`` long."""
    line = plain(text[: 40 * tokens])
    return next((clip(line[start:end], tokens) for start, end in sentences(line)), "")


def clip(text: str, tokens: int) -> str:
    """A text cut to at most ``tokens``, between words or clauses where it can be, with an ellipsis where cut."""
    if count_tokens(text) <= tokens:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest beginning that leaves room for the ellipsis
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_tokens(text[:middle]) < tokens else (low, middle - 1)
    joint = max(text.rfind(sign, low * 3 // 4, low + 1) for sign in _JOINTS)
    return text[: joint if joint > 0 else low].rstrip(_JOINTS) + "…"


def _prose(text: str) -> list[str]:
    found = (plain(text[block.start : block.end]) for block in blocks(text) if block.kind in {"prose", "item"})
    return [part for part in found if part]


def _ranked(spoken: Sequence[str], lead: float) -> list[int]:
    """Positions of sentences, best first; questions and very short ones last."""
    terms = [set(analyze(sentence).words) for sentence in spoken]
    spread = Counter(term for own in terms for term in own)
    shared = [sum(spread[term] - 1 for term in own) / math.sqrt(len(own) or 1) for own in terms]
    most = max(shared, default=0) or 1
    scores = [lead / (1 + position) + value / most for position, value in enumerate(shared)]
    poor = [count_tokens(sentence) < _LEAST_TOKENS or sentence[-1] in "?？" for sentence in spoken]
    return sorted(range(len(spoken)), key=lambda position: (poor[position], -scores[position], position))


def _joined(parts: Iterable[str]) -> str:
    text = ""
    for part in parts:
        text += part if not text or text[-1] in _FULL_WIDTH_ENDS else " " + part
    return text


def _narrow(entry: Entry, width: int) -> str:
    """A line's sentence in at most ``width`` tokens; without a title it stays, because it is all there is."""
    return clip(entry.text, width or _WIDTHS[-2]) if width or not entry.title else ""


def _line(entry: Entry) -> str:
    return ": ".join(part for part in (entry.title, entry.text) if part)


def _cost(entry: Entry) -> int:
    return count_tokens(_line(entry)) + 1
