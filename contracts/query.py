"""A planned query (seed 1 §3.1, C2, C10)."""

from typing import Literal

import msgspec

ContextType = Literal["memory", "skill", "resource"]
# Priority when a query carries several intents (C10).
CONTEXT_TYPES: tuple[ContextType, ...] = ("memory", "skill", "resource")


class TimeRange(msgspec.Struct, frozen=True, gc=False):
    """Bounds on ``updated_at``, milliseconds since the epoch, both inclusive; ``None`` is open."""

    start: int | None = None
    end: int | None = None


class QueryFilters(msgspec.Struct, frozen=True):
    """Narrowing filters of a typed query. ``account_id`` is set by the server from the RequestContext."""

    account_id: str | None = None
    owner_space: str | None = None
    time_range: TimeRange | None = None


class QueryHints(msgspec.Struct, frozen=True):
    """What the rechecker holds candidates to, and what the planner made of the query."""

    intent: str | None = None
    must_have_terms: tuple[str, ...] = ()
    exclude_terms: tuple[str, ...] = ()


class TypedQuery(msgspec.Struct, frozen=True):
    """One query of one context type. ``top_k`` is in 1..50; ``categories`` boost, they do not exclude."""

    text: str
    context_type: ContextType
    categories: tuple[str, ...] = ()
    target_uri: str | None = None
    top_k: int = 10
    filters: QueryFilters = QueryFilters()
    hints: QueryHints = QueryHints()
