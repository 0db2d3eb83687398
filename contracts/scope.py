"""The system filter, built here and nowhere else (C20): account AND spaces AND visible, then AND the caller's."""

import time

from contracts.context import RequestContext
from contracts.errors import TargetForbidden
from contracts.filters import Eq, Filter, In, Not, Range, Under, all_of
from contracts.query import TypedQuery
from contracts.uri import parse, space_of


def system_filter(ctx: RequestContext) -> Filter:
    """What ``ctx`` may see at all: its account, its spaces, active and unexpired nodes."""
    spaces = ctx.owner_spaces()
    return all_of(
        Eq("account_id", ctx.account_id),
        None if spaces is None else In("owner_space", spaces),
        Eq("status", "active"),
        Not(Range("expires_at", gt=0, lte=time.time() * 1000)),
    )


def search_filter(ctx: RequestContext, query: TypedQuery, caller: Filter | None = None) -> Filter:
    """The whole filter of one typed query: system AND level 0 (C11) AND context type AND what the caller asks for.

    Args:
        ctx: Who asks.
        query: ``filters`` and ``target_uri`` narrow; its ``account_id`` is not looked at.
        caller: The caller's own filter.
    """
    times = query.filters.time_range
    return all_of(
        system_filter(ctx),
        Eq("level", 0),
        Eq("context_type", query.context_type),
        Eq("owner_space", query.filters.owner_space) if query.filters.owner_space else None,
        Range("updated_at", gte=times.start, lte=times.end) if times else None,
        Under("uri", query.target_uri) if query.target_uri else None,
        caller,
    )


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
