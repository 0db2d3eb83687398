"""From what the upstream found in each scope to the one list that is answered (G5, G6)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from contracts.trace import Degradation
from gateway.requests import ScopeName
from gateway.upstream import ARRAYS, Item, MemoryArray, UpstreamAnswer

MemoryType = Literal["episode", "profile", "agent_case", "agent_skill", "unprocessed_message"]
MEMORY_TYPES: Mapping[MemoryArray, MemoryType] = {
    "episodes": "episode",
    "profiles": "profile",
    "agent_cases": "agent_case",
    "agent_skills": "agent_skill",
    "unprocessed_messages": "unprocessed_message",
}
# The fields that make up a memory's text: the first that has one, or all of them.
_FIRST: Mapping[MemoryArray, tuple[str, ...]] = {
    "episodes": ("episode", "summary", "subject"),
    "profiles": ("profile_data",),
    "unprocessed_messages": ("content",),
}
_ALL: Mapping[MemoryArray, tuple[str, ...]] = {
    "agent_cases": ("task_intent", "approach", "key_insight"),
    "agent_skills": ("name", "description", "content"),
}


class MemoryResult(msgspec.Struct, frozen=True):
    """A memory found (G5).

    Args:
        id: Of the memory; tombstones and overrides go by it.
        session_id: Where it was made; ``None`` for what is of no session, for instance a profile.
        text: What it says, or what the user's override says instead.
        score: As the upstream gave it; scores of different methods can't be compared.
        source_scope: The scope it was found in; of several, the one where it scored best.
        memory_type: What it is.
        resource_id: The user's own resource that its session belongs to.
        resource_uri: The URI of that resource.
        raw: As the upstream gave it.
    """

    id: str
    session_id: str | None
    text: str
    score: float | None
    source_scope: ScopeName
    memory_type: MemoryType
    resource_id: str | None
    resource_uri: str | None
    raw: Item


class SearchMemoriesResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer of ``POST /memories/search``, best first; ``degraded`` is there only where something was missing."""

    results: list[MemoryResult]
    degraded: tuple[Degradation, ...] = ()


def of_scope(scope: ScopeName, answers: Iterable[UpstreamAnswer]) -> list[MemoryResult]:
    """The results of one scope, as they come."""
    return [_result(scope, array, item) for answer in answers for array in ARRAYS for item in getattr(answer, array)]


def merged(scopes: Iterable[Sequence[MemoryResult]]) -> list[MemoryResult]:
    """The results of all scopes, best first; a memory found in several counts once, where it scored best.

    Among equals the earlier scope and the earlier place win; what has no score comes last.
    """
    best: dict[tuple[MemoryType, str], MemoryResult] = {}
    for results in scopes:
        for result in results:
            key = result.memory_type, result.id
            if key not in best or _points(best[key]) < _points(result):
                best[key] = result
    return sorted(best.values(), key=_points, reverse=True)


def _points(result: MemoryResult) -> float:
    return -1.0 if result.score is None else result.score


def _result(scope: ScopeName, array: MemoryArray, item: Item) -> MemoryResult:
    session, score = item.get("session_id"), item.get("score")
    numeric = isinstance(score, int | float) and not isinstance(score, bool)
    return MemoryResult(
        id=item["id"],
        session_id=session if isinstance(session, str) else None,
        text=_text(array, item),
        score=score if numeric else None,
        source_scope=scope,
        memory_type=MEMORY_TYPES[array],
        resource_id=None,
        resource_uri=None,
        raw=item,
    )


def _text(array: MemoryArray, item: Item) -> str:
    if array in _ALL:
        return "\n".join(filter(None, (plain(item.get(field)) for field in _ALL[array])))
    return next(filter(None, (plain(item.get(field)) for field in _FIRST[array])), "")


def plain(value: Any) -> str:
    """Text as it is; of parts of a message their texts; of any other object its JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case [*parts]:
            return "\n".join(part["text"] for part in parts if isinstance(part, Mapping) and _has_text(part))
        case {"text": str(text)} if len(value) == 1:
            return text
    return msgspec.json.encode(value).decode()


def _has_text(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str)
