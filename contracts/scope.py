"""The system filter, built here and nowhere else (C20): account AND spaces AND visible, then AND the caller's.

Recall has the index apply it; the rechecker and the reader apply it once more to what the source of truth says.
"""

import time

import msgspec

from contracts.context import RequestContext
from contracts.errors import TargetForbidden
from contracts.filters import Eq, Filter, In, Not, Range, Under, all_of
from contracts.query import TypedQuery
from contracts.uri import parse, space_of


def system_conditions(ctx: RequestContext) -> dict[str, Filter]:
    """What ``ctx`` may see at all: its account, its spaces, active and unexpired nodes.

    Returns:
        The conditions, by the reason for which a node that fails one is kept from view.
    """
    spaces = ctx.owner_spaces()
    return {
        "forbidden": all_of(Eq("account_id", ctx.account_id), None if spaces is None else In("owner_space", spaces)),
        "inactive": Eq("status", "active"),
        "expired": Not(Range("expires_at", gt=0, lte=time.time() * 1000)),
    }


def search_conditions(ctx: RequestContext, query: TypedQuery, caller: Filter | None = None) -> dict[str, Filter]:
    """All conditions of one typed query: system AND level 0 (C11) AND context type AND what the caller asks for.

    Args:
        ctx: Who asks.
        query: ``filters`` and ``target_uri`` narrow; its ``account_id`` is not looked at.
        caller: The caller's own filter.

    Returns:
        The conditions, by the reason for which a node that fails one is no candidate.
    """
    narrowing, times = query.filters, query.filters.time_range
    asked = {
        "level": Eq("level", 0),
        "context_type": Eq("context_type", query.context_type),
        "owner_space": None if narrowing.owner_space is None else Eq("owner_space", narrowing.owner_space),
        "time_range": Range("updated_at", gte=times.start, lte=times.end) if times else None,
        "target_uri": None if query.target_uri is None else Under("uri", query.target_uri),
        "filter": caller,
    }
    return system_conditions(ctx) | {reason: condition for reason, condition in asked.items() if condition is not None}


def system_filter(ctx: RequestContext) -> Filter:
    """The conditions of :func:`system_conditions` as one filter."""
    return all_of(*system_conditions(ctx).values())


def search_filter(ctx: RequestContext, query: TypedQuery, caller: Filter | None = None) -> Filter:
    """The conditions of :func:`search_conditions` as one filter."""
    return all_of(*search_conditions(ctx, query, caller).values())


def narrowed(ctx: RequestContext, space: str) -> RequestContext:
    """The same caller with one space, and what all share; whether they may see it has been decided before."""
    return msgspec.structs.replace(ctx, role="agent", user_space="", agent_space=space, spaces=())


def check_target(ctx: RequestContext, target_uri: str) -> str:
    """The canonical target URI, when its space is in the caller's scope (C21).

    Decided from the URI alone, so that a forbidden target and an absent one cost the same.

    Raises:
        InvalidUri: Not a URI.
        TargetForbidden: Outside the scope, whether it exists or not.
    """
    uri = parse(target_uri, field="target_uri")
    if not ctx.may_see(space_of(uri)):
        raise TargetForbidden("You may not search there.", field="target_uri")
    return uri
