"""What an assistant remembers of a user: facts, preferences, constraints, hints, and the conversations themselves (R4).

Memories lie in a space of their own beside the user's, which plain searches never see: so every search of them is held
to one user, assistant and conversation (R6), and to what the caller's role is cleared for. Whoever may see the user's
space may ask.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.errors import InvalidBody, InvalidUri, TargetForbidden
from contracts.filters import Eq, In, all_of
from contracts.uri import parse_space
from corpora.context.turns import Session, Turn, millis, spoken, whole_text
from corpora.memory_bodies import (
    DIMENSIONS,
    SENSITIVITIES,
    Dimensions,
    Kept,
    MemoryIngestBody,
    MemoryRetrieveBody,
    Sensitivity,
)
from corpora.rag.bodies import digest, keywords, read, weighed
from corpora.rag.types import CorpusHit, Passage, Raw, Scope, SourceDocument

_FIRST = frozenset({"constraint", "preference"})
# Confidence is filtered by as a keyword, so it has this many steps from 0 to 1.
_STEPS = 100


class Clearance(BaseModel):
    """The highest sensitivity level that each role is shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: Sensitivity = Field("private", description="Higher: users see more of what is kept on them.")
    agent: Sensitivity = Field("internal", description="Higher: assistants know more, and may say it aloud.")
    admin: Sensitivity = Field("secret", description="Lower: even administrators are kept from it.")


class MemoryConfig(BaseModel):
    """Who is shown which memories, and how they are ordered."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clearance: Clearance = Clearance()
    default_sensitivity: Sensitivity = Field(
        "internal", description="Of memories that name none. Private keeps them from agents; public shows them to all."
    )
    confidence_weight: float = Field(
        0.1, ge=0, le=1, description="How much of its score a memory of no confidence loses. 0: confidence is ignored."
    )


class MemoryCorpus:
    """The memories of users, as ``corpora.rag.ports.CorpusAdapter`` says.

    Args:
        config: Clearance and weights.
        clock: Seconds since the epoch, for memories that say no time.
    """

    name = "memory"

    def __init__(self, config: MemoryConfig | None = None, clock: Callable[[], float] = time.time) -> None:
        self._config = config or MemoryConfig()
        self._clock = clock

    def build_ingest_documents(self, ctx: RequestContext, raw: Raw) -> list[SourceDocument]:
        """One document an item, one a dialogue."""
        body = read(MemoryIngestBody, raw, *DIMENSIONS)
        space = _space(ctx, body)
        if not (body.items or body.dialogues):
            raise InvalidBody("The body holds nothing to remember.", field="items", remedy="Give items or dialogues.")
        documents = [*self._items(body, space), *self._dialogues(body, space)]
        return list({document.source_id: document for document in documents}.values())

    def build_retrieve_filter(self, ctx: RequestContext, raw: Raw) -> Scope:
        """The user's space; the dimensions, what the caller is cleared for, and the options as hard conditions."""
        body = read(MemoryRetrieveBody, raw, *DIMENSIONS)
        cleared: Sensitivity = getattr(self._config.clearance, ctx.role)
        levels = [SENSITIVITIES.index(level) for level in (cleared, body.options.max_sensitivity) if level]
        types, least = body.options.memory_types, body.options.min_confidence
        must = all_of(
            *(Eq(f"attrs.{name}", getattr(body, name)) for name in DIMENSIONS),
            In("attrs.sensitivity_level", SENSITIVITIES[: min(levels) + 1]),
            In("attrs.memory_type", tuple(types)) if types else None,
            In("attrs.confidence", tuple(map(_step, range(_steps(least, math.ceil), _STEPS + 1)))) if least else None,
        )
        return Scope(_space(ctx, body), must, "memory")

    def arrange(self, raw: Raw, hits: Sequence[CorpusHit]) -> list[CorpusHit]:
        """Constraints and preferences before all else (R4); within each, by score, weighed lightly by confidence."""
        found = [
            msgspec.structs.replace(hit, score=weighed(hit.score, (self._config.confidence_weight, _confidence(hit))))
            for hit in hits
        ]
        return sorted(found, key=lambda hit: (_type(hit) not in _FIRST, -hit.score, hit.uri))

    def _items(self, body: MemoryIngestBody, space: str) -> Iterator[SourceDocument]:
        of_event: Counter[str] = Counter()
        for number, item in enumerate(body.items):
            if not item.text.strip():
                raise InvalidBody("The text is blank.", field=f"items.{number}.text", remedy="Leave the item out.")
            of_event[event := item.source_event_id or ""] += 1
            own = ("event", event, str(of_event[event])) if event else ("text", item.memory_type, item.text)
            document = self._document(body, space, item, own)
            when = max(0, item.created_at or self._now())
            yield msgspec.structs.replace(
                document,
                kind="memory",
                category=item.memory_type,
                text=item.text,
                attrs=document.attrs
                | keywords(
                    memory_type=item.memory_type,
                    confidence=_step(_steps(item.confidence, math.floor)),
                    source_event_id=item.source_event_id,
                ),
                created_at=when,
                updated_at=when,
            )

    def _dialogues(self, body: MemoryIngestBody, space: str) -> Iterator[SourceDocument]:
        for number, dialogue in enumerate(body.dialogues):
            turns = [Turn(turn.text, turn.speaker, turn.id, turn.time) for turn in dialogue.turns]
            session = Session(dialogue.session_id, turns, dialogue.date)
            said = spoken(session)
            if not said:
                where = f"dialogues.{number}.turns"
                raise InvalidBody("No turn holds text.", field=where, remedy="Leave the dialogue out.")
            document = self._document(body, space, dialogue, ("session", dialogue.session_id))
            when = max(0, millis(dialogue.date) or self._now())
            yield msgspec.structs.replace(
                document,
                kind="session",
                category="conversation",
                title=dialogue.session_id,
                text=whole_text(session, said),
                passages=tuple(
                    Passage(
                        each.content,
                        name=each.turn.speaker,
                        search_text=each.search_text,
                        vector_texts=each.vector_texts,
                        attrs=keywords(speaker=each.turn.speaker, id=each.turn.id),
                        kind="turn",
                    )
                    for each in said
                ),
                attrs=document.attrs
                | keywords(memory_type="conversation", confidence=_step(_STEPS), session=dialogue.session_id),
                created_at=when,
                updated_at=when,
            )

    def _document(self, body: Dimensions, space: str, kept: Kept, own: tuple[str, ...]) -> SourceDocument:
        """What an item and a dialogue share; ids made here are apart for each assistant and conversation."""
        made = f"{own[0]}-{digest(body.assistant_id, body.conversation_id, *own[1:])}"
        level = kept.sensitivity_level or self._config.default_sensitivity
        return SourceDocument(
            kept.source_id or made,
            space,
            "memory",
            "memory",
            tags=tuple(kept.tags),
            attrs=keywords(sensitivity_level=level, **{name: getattr(body, name) for name in DIMENSIONS}),
            # 0 would mean never.
            expires_at=0 if kept.ttl_at is None else max(1, kept.ttl_at),
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _space(ctx: RequestContext, body: Dimensions) -> str:
    """The memory space beside the user's; ids that no space can be named after are refused: two ids never share one."""
    try:
        space, own = (parse_space(f"{beside}{body.user_id}", field="user_id") for beside in ("memory.", "user:"))
    except InvalidUri:
        remedy = "Use 1..57 characters of a-z 0-9 . _ : -, the user's part of its space user:<user_id>."
        raise InvalidBody("user_id names no space.", field="user_id", remedy=remedy) from None
    if not ctx.may_see(own):
        raise TargetForbidden("You may not use this user's memories.", field="user_id")
    return space


def _steps(confidence: float, rounded: Callable[[float], int]) -> int:
    # 0.29 · 100 is a little less than 29.
    return rounded(round(confidence * _STEPS, 6))


def _step(number: int) -> str:
    return f"{number / _STEPS:.2f}"


def _confidence(hit: CorpusHit) -> float:
    return float(next(iter(hit.attrs.get("confidence", ())), 1.0))


def _type(hit: CorpusHit) -> str:
    return next(iter(hit.attrs.get("memory_type", ())), "")
