"""Which records of the memory corpus are which memories, and how they look as the upstream API shows them.

====================  ===================================================================================
array of the answer   records whose attribute ``memory_type`` is
====================  ===================================================================================
profiles              ``profile``
agent_cases           ``agent_case``
agent_skills          ``agent_skill``
unprocessed_messages  ``unprocessed_message``, or ``conversation``: the turns of dialogues
episodes              anything else: facts, preferences, constraints, hints, episodes
====================  ===================================================================================

Users have episodes, profiles and unprocessed messages; agents have cases, skills and unprocessed messages. A user's
records lie in the space ``memory.<user>``, an agent's in ``agent-memory.<agent>``: spaces that no other search sees.

A record's session is its attribute ``session_id``; without one it is ``chat:<conversation_id>``. Who sent it are the
attributes ``sender_id`` and ``speaker``. Its app and project are ``app_id`` and ``project_id``; a record that names
none is of ``default``, and one that does says so in the attribute ``named`` too, because no filter can ask for what is
missing. Its id is that of its source, of a turn that and the turn's number; a chunk is shown as its source. What has
children is not shown: they hold its text.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from contracts.errors import InvalidUri
from contracts.filters import Eq, Filter, In, Not, Or, all_of
from contracts.ports import NodeMeta
from contracts.records import corpus_source
from contracts.uri import parse_space
from gateway.scopes import chat_session
from gateway.upstream import MemoryArray, Owner, UpstreamQuery, User

CORPUS = "memory"
DEFAULT = "default"
_CHAT = chat_session("")
_TYPES: Mapping[MemoryArray, tuple[str, ...]] = {
    "profiles": ("profile",),
    "agent_cases": ("agent_case",),
    "agent_skills": ("agent_skill",),
    "unprocessed_messages": ("unprocessed_message", "conversation"),
}
# What tells the records of an array from all others.
CONDITIONS: Mapping[MemoryArray, Filter] = {
    **{array: In("attrs.memory_type", names) for array, names in _TYPES.items()},
    "episodes": Not(In("attrs.memory_type", tuple(name for names in _TYPES.values() for name in names))),
}
# Searched by relevance; profiles are given besides.
RANKED: Mapping[str, tuple[MemoryArray, ...]] = {
    "user_id": ("episodes", "unprocessed_messages"),
    "agent_id": ("agent_cases", "agent_skills", "unprocessed_messages"),
}


class Memory(msgspec.Struct, frozen=True):
    """A record found, with its text.

    Args:
        node: Its live metadata.
        name: Its title, redacted where the settings say so.
        abstract: Its L0, redacted where the settings say so.
        text: Its L2, redacted.
        score: What it is ranked by, 0..1.
    """

    node: NodeMeta
    name: str
    abstract: str
    text: str
    score: float

    @property
    def memory_id(self) -> str:
        """The id under which it is shown, and under which tombstones and overrides name it."""
        source = _one(self.node, "source")
        own_part = self.node.parent_uri and self.node.kind != "chunk"
        return f"{source}#{self.node.uri.rpartition('-')[2]}" if own_part else source


def user_space(user_id: str) -> str:
    """The owner space of a user's memory, as the memory corpus names it.

    Raises:
        InvalidUri: No space can be named after the user.
    """
    return parse_space(f"memory.{user_id}", field="space")


def agent_space(agent_id: str) -> str:
    """The owner space of an agent's memory.

    Raises:
        InvalidUri: No space can be named after the agent.
    """
    return parse_space(f"agent-memory.{agent_id}", field="agent")


def space_of(user: User, owner: Owner) -> str:
    """The owner space that is searched; empty for an agent that no space can be named after, so that has no memory."""
    if owner.kind == "user_id":
        return user.space
    try:
        return agent_space(owner.id)
    except InvalidUri:
        return ""


def in_owner(space: str, query: UpstreamQuery) -> Filter:
    """Records of the memory corpus in one space, of one app and project."""
    return all_of(
        Eq("owner_space", space),
        Eq("source_id", corpus_source(CORPUS, space)),
        _named("app_id", query.app_id),
        _named("project_id", query.project_id),
    )


def in_sessions(sessions: tuple[str, ...]) -> Filter:
    """Records of one of these sessions."""
    named: Filter = In("attrs.session_id", sessions)
    chats = tuple(s.removeprefix(_CHAT) for s in sessions if s.startswith(_CHAT) and s != _CHAT)
    return Or((named, In("attrs.conversation_id", chats))) if chats else named


def from_senders(senders: tuple[str, ...]) -> Filter:
    """Records that one of these has sent."""
    return Or((In("attrs.sender_id", senders), In("attrs.speaker", senders)))


def shown(memory: Memory, array: MemoryArray, query: UpstreamQuery) -> dict[str, Any]:
    """A memory as an item of the upstream API; what the record does not say is left out."""
    node, text = memory.node, memory.text
    common: dict[str, Any] = {
        "id": memory.memory_id,
        "app_id": query.app_id,
        "project_id": query.project_id,
        "score": round(memory.score, 6),
    }
    owned = common | {query.owner.kind: query.owner.id}
    placed = {"session_id": _session(node), "timestamp": _iso(node.created_at)}
    match array:
        case "episodes":
            own = {"type": "Conversation", "subject": memory.name, "summary": memory.abstract, "episode": text}
            return owned | placed | own | {"sender_ids": list(_senders(node)), "atomic_facts": []}
        case "profiles":
            return owned | {"profile_data": _object(text)}
        case "agent_cases":
            return owned | placed | {"task_intent": memory.name, "approach": text}
        case "agent_skills":
            return owned | {"name": memory.name, "description": memory.abstract, "content": text}
        case "unprocessed_messages":
            sender, role = next(iter(_senders(node)), ""), _one(node, "role") or "user"
            return common | placed | {"sender_id": sender, "role": role, "content": text}


def _named(attribute: str, value: str) -> Filter:
    own = Eq(f"attrs.{attribute}", value)
    return Or((own, Not(Eq("attrs.named", attribute)))) if value == DEFAULT else own


def _session(node: NodeMeta) -> str | None:
    conversation = _one(node, "conversation_id")
    return _one(node, "session_id") or (chat_session(conversation) if conversation else None)


def _senders(node: NodeMeta) -> tuple[str, ...]:
    return node.attrs.get("sender_id") or node.attrs.get("speaker", ())


def _one(node: NodeMeta, attribute: str) -> str:
    return next(iter(node.attrs.get(attribute, ())), "")


def _iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _object(text: str) -> dict[str, Any]:
    """A profile's data; one that is prose is under ``text``."""
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError:
        data = None
    return data if isinstance(data, dict) else {"text": text}
