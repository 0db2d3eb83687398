"""What each scope adds to a search, and how that meets the caller's own filters (G4)."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.requests import ScopeName

# Filters in the upstream's language, as JSON.
Filters = Mapping[str, Any]


def chat_session(conversation_id: str) -> str:
    """The session that a conversation is remembered under."""
    return f"chat:{conversation_id}"


def conditions(
    scope: ScopeName, conversation_id: str | None, sessions: Sequence[str], batch: int
) -> list[Filters | None]:
    """The conditions under which a scope is searched: one search each.

    Args:
        scope: The scope.
        conversation_id: The chat of ``current_chat``; without one that scope is skipped.
        sessions: Those of the user's resources; without any, ``resources`` is skipped.
        batch: Most sessions a search.

    Returns:
        ``None`` stands for no condition; an empty list skips the scope.
    """
    match scope:
        case "current_chat":
            return [{"session_id": chat_session(conversation_id)}] if conversation_id else []
        case "resources":
            starts = range(0, len(sessions), batch)
            return [{"session_id": {"in": list(sessions[start : start + batch])}} for start in starts]
        case "all_user_memory":
            return [None]


def merged(custom: Filters | None, scope: Filters | None) -> Filters | None:
    """Both conditions under one ``AND``, so that a custom one can only narrow its scope.

    Returns:
        One alone as it is; ``None`` where there is neither.
    """
    return {"AND": [custom, scope]} if custom and scope else custom or scope or None
