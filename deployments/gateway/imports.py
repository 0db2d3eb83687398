"""Memories as an upstream service gives them, made sources of the memory corpus; see ``gateway.memories``.

A file is JSON, either an answer of such a service or its arrays alone (``{"episodes": [...], "profiles": [...]}``), or
JSON lines with one memory each, whose ``memory_type`` says what it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import InvalidInput
from corpora.memory_bodies import Sensitivity
from corpora.rag.types import SourceDocument
from gateway.memories import DEFAULT
from gateway.results import MEMORY_TYPES, plain
from gateway.upstream import ARRAYS, MemoryArray

_ARRAY_OF: Mapping[str, MemoryArray] = {kind: array for array, kind in MEMORY_TYPES.items()}
# By array: the fields that make up title and text.
_TITLES: Mapping[MemoryArray, str] = {"episodes": "subject", "agent_cases": "task_intent", "agent_skills": "name"}
_TEXTS: Mapping[MemoryArray, tuple[str, ...]] = {
    "episodes": ("episode",),
    "profiles": ("profile_data",),
    "agent_cases": ("approach", "key_insight"),
    "agent_skills": ("description", "content"),
    "unprocessed_messages": ("content",),
}
_LISTED = ("sender_id", "parent_type", "parent_id", "role")


def read(path: Path) -> list[tuple[MemoryArray, Mapping[str, Any]]]:
    """The memories of a file, each with its array.

    Raises:
        InvalidInput: The file can't be read, or a memory in it can't be understood.
    """
    try:
        raw = path.read_bytes()
        if path.suffix.lower() != ".json":
            return [_typed(item, number) for number, item in enumerate(map(msgspec.json.decode, _lines(raw)), 1)]
        whole = msgspec.json.decode(raw)
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}.", field="path") from None
    except msgspec.DecodeError:
        raise InvalidInput(f"{path} is no JSON.", field="path", remedy="End its name in .json or .jsonl.") from None
    arrays = whole.get("data", whole) if isinstance(whole, dict) else None
    if not isinstance(arrays, dict) or not any(array in arrays for array in ARRAYS):
        raise InvalidInput(f"{path} holds none of {', '.join(ARRAYS)}.", field="path")
    return [(array, _item(item, f"{array}[{i}]")) for array in ARRAYS for i, item in enumerate(arrays.get(array) or ())]


def documents(
    memories: Iterable[tuple[MemoryArray, Mapping[str, Any]]], space: str, sensitivity: Sensitivity
) -> Iterator[SourceDocument]:
    """The memories as sources of the memory corpus.

    Args:
        memories: From :func:`read`.
        space: Owner space they go to.
        sensitivity: Of all of them.

    Raises:
        InvalidInput: A memory has no text, or its time is none.
    """
    for array, item in memories:
        text = "\n".join(filter(None, (plain(item.get(field)) for field in _TEXTS[array])))
        text = text or plain(item.get("summary"))
        if not text.strip():
            raise InvalidInput(f"{item['id']} holds no text.", field=_TEXTS[array][0])
        when = _millis(item)
        yield SourceDocument(
            item["id"],
            space,
            "turn" if array == "unprocessed_messages" else "memory",
            "memory",
            text=text,
            title=plain(item.get(_TITLES.get(array, ""))),
            category=MEMORY_TYPES[array],
            attrs=_attributes(array, item) | {"sensitivity_level": (sensitivity,)},
            created_at=when,
            updated_at=when,
        )


def _attributes(array: MemoryArray, item: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    scoped = {name: str(item.get(name) or DEFAULT) for name in ("app_id", "project_id")}
    named = {name: value for name, value in scoped.items() if value != DEFAULT}
    found = {"memory_type": MEMORY_TYPES[array], "session_id": item.get("session_id"), **named}
    found |= {name: item.get(name) for name in _LISTED}
    attributes = {name: (value,) for name, value in found.items() if isinstance(value, str) and value}
    senders = tuple(sender for sender in item.get("sender_ids") or () if isinstance(sender, str) and sender)
    return attributes | ({"sender_id": senders} if senders else {}) | ({"named": tuple(named)} if named else {})


def _millis(item: Mapping[str, Any]) -> int:
    given = item.get("timestamp")
    match given:
        case None:
            return 0
        case bool():
            pass
        case int() | float() if given >= 0:
            return int(given)
        case str():
            try:
                moment = datetime.fromisoformat(given)
                return max(0, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
            except (ValueError, OverflowError):
                pass
    raise InvalidInput(f"{item['id']} has a timestamp that is none.", field="timestamp", remedy="Write ISO 8601 or ms.")


def _typed(item: Any, number: int) -> tuple[MemoryArray, Mapping[str, Any]]:
    memory = _item(item, f"line {number}")
    array = _ARRAY_OF.get(str(memory.get("memory_type")))
    if array is None:
        raise InvalidInput(
            f"line {number} has no known memory_type.", field="memory_type", remedy=f"Use {', '.join(_ARRAY_OF)}."
        )
    return array, memory


def _item(item: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        raise InvalidInput(f"{where} is no object with an id.", field="id")
    return item


def _lines(raw: bytes) -> Iterator[bytes]:
    return (line for line in raw.splitlines() if line.strip())
