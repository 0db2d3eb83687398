"""Nothing of another tenant, space or state leaves, whatever is asked, on every backend (C20 to C22).

The stages are the product's own, in this process; what may be seen is worked out here by hand, not by the code under
test.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, InvalidUri, RequestError, TargetForbidden
from contracts.filters import matches, parse_filter
from contracts.hits import Relation
from contracts.records import Node
from contracts.stages import ReadRequest
from contracts.uri import is_under, parent_of, space_of
from tests.contract.conftest import Index
from tests.contract.corpus import record
from tests.contract.tenants import (
    ANN,
    FUTURE,
    PAST,
    SOURCE,
    SPACES,
    URIS,
    CountingIndex,
    made,
    names,
    reader,
    search,
    shown,
    store,
)


def visible(ctx: RequestContext, node: Node) -> bool:
    """The role table of docs/api.md, spelt out."""
    space = space_of(node.uri)
    own = space == "shared" or space in (ctx.user_space, ctx.agent_space) or space in ctx.spaces
    return (ctx.role == "admin" or own) and node.status == "active" and node.expires_at in (0, FUTURE)


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    uris = draw(some(URIS, 14, 1))
    return [
        made(
            uri,
            context_type=draw(st.sampled_from(["memory", "skill", "resource"])),
            kind=draw(st.sampled_from(["section", "turn"])),
            category=draw(st.sampled_from(["guide", "event"])),
            tags=tuple(draw(some(["x", "y", "密"], 2))),
            attrs=draw(st.dictionaries(st.just("lang"), st.sampled_from([("zh",), ("en", "zh")]), max_size=1)),
            status=draw(st.sampled_from(["active", "active", "active", "archived"])),
            expires_at=draw(st.sampled_from([0, 0, FUTURE, PAST])),
            updated_at=draw(st.integers(1, 3)),
            has_children=any(parent_of(other) == uri for other in uris),
            relations=tuple(Relation(to, "see", draw(st.floats(0, 1))) for to in draw(some(URIS, 3))),
        )
        for uri in uris
    ]


def some(values: Sequence[Any], most: int, least: int = 0) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=most).map(
        lambda found: list(dict.fromkeys(found))
    )


callers = st.builds(
    RequestContext,
    account_id=st.just(""),
    role=st.sampled_from(["user", "user", "agent", "admin"]),
    user_space=st.sampled_from(["", "user:ann", "user:bob"]),
    agent_space=st.sampled_from(["", "agent:planner"]),
    spaces=some(["team:x", "user:bob"], 2).map(tuple),
)


condition = st.one_of(
    st.sampled_from(["guide", "event", "none"]).map(lambda v: {"eq": {"category": v}}),
    some(["section", "turn"], 2, 1).map(lambda v: {"in": {"kind": v}}),
    some(["x", "y", "密"], 2, 1).map(lambda v: {"contains": {"tags": v}}),
    st.sampled_from(["zh", "en"]).map(lambda v: {"eq": {"attrs.lang": v}}),
    st.sampled_from(URIS).map(lambda v: {"under": {"uri": v}}),
    st.sampled_from(SPACES).map(lambda v: {"eq": {"owner_space": v}}),
    st.integers(0, 4).map(lambda v: {"range": {"updated_at": {"gte": v}}}),
)


filters = st.recursive(
    condition,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)


asks = st.fixed_dictionaries(
    {},
    optional={
        "filter": filters,
        "owner_space": st.sampled_from([*SPACES, "nobody"]),
        "target_uri": st.sampled_from([*URIS, *(f"strata://{space}" for space in (*SPACES, "nobody"))]),
        "time_range": st.sampled_from([{"start": 2}, {"end": 2}, {"start": 2, "end": 2}]),
        "planner_hints": st.sampled_from([{"context_types": ["memory"]}, {"context_types": ["skill", "resource"]}]),
    },
)


def expected(ctx: RequestContext, nodes: Sequence[Node], ask: Mapping[str, Any]) -> set[str]:
    """What a search shows, with vectors that find every record: all that may be seen and was asked for."""
    mine = [node for node in nodes if visible(ctx, node)]
    target = ask.get("target_uri")
    if target and target.count("/") > 2 and not any(is_under(node.uri, target) for node in mine):
        target = None  # RET-4041
    times, types = ask.get("time_range", {}), ask.get("planner_hints", {}).get("context_types")
    caller = parse_filter(ask["filter"]) if "filter" in ask else None
    return {
        node.uri
        for node in mine
        if (not target or is_under(node.uri, target))
        and (not types or node.context_type in types)
        and ("owner_space" not in ask or space_of(node.uri) == ask["owner_space"])
        and times.get("start", 0) <= node.updated_at <= times.get("end", 9)
        and (caller is None or matches(caller, record(ctx.account_id, SOURCE, node)))
    }


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    tenants=st.lists(trees(), min_size=2, max_size=2),
    cases=st.lists(st.tuples(callers, asks), min_size=12, max_size=12),
)
async def test_a_search_shows_what_the_caller_may_see_and_asked_for_and_nothing_else(
    shared_index: Index, tenants: list[list[Node]], cases: list[tuple[RequestContext, dict[str, Any]]]
) -> None:
    """C20, C21: and a caller's filter never adds a hit."""
    index = CountingIndex(shared_index)
    accounts = {next(names): nodes for nodes in tenants}
    for account, nodes in accounts.items():
        await store(shared_index, account, nodes)
    for number, (caller, ask) in enumerate(cases):
        account, nodes = list(accounts.items())[number % 2]
        ctx = msgspec.structs.replace(caller, account_id=account)
        target = ask.get("target_uri")
        if target and not ctx.may_see(space_of(target)):
            index.asked.clear()
            with pytest.raises(TargetForbidden):
                await search(index, ctx, **ask)
            assert index.asked == []
            continue
        found = shown(await search(index, ctx, **ask, include_debug=True, trace_level="detailed"))
        assert found == expected(ctx, nodes, ask)
        if "filter" in ask:
            assert found <= shown(await search(index, ctx, **{key: ask[key] for key in ask.keys() - {"filter"}}))


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(tenants=st.lists(trees(), min_size=2, max_size=2), cases=st.lists(callers, min_size=6, max_size=6))
async def test_a_read_shows_what_the_caller_may_see_and_relations_to_nothing_else(
    shared_index: Index, tenants: list[list[Node]], cases: list[RequestContext]
) -> None:
    """C22: of everything that there might be, just what there is and may be seen."""
    accounts = {next(names): nodes for nodes in tenants}
    for account, nodes in accounts.items():
        await store(shared_index, account, nodes)
    for number, caller in enumerate(cases):
        account, nodes = list(accounts.items())[number % 2]
        ctx = msgspec.structs.replace(caller, account_id=account)
        allowed = {node.uri: node for node in nodes if visible(ctx, node)}
        request = ReadRequest(tuple(URIS), "L2", expand_relations=True, max_relations=10)
        result = await reader(shared_index)(ctx, Deadline.after(60), request)
        assert [block.uri for block in result.blocks] == [uri for uri in URIS if uri in allowed]
        assert result.forbidden == tuple(uri for uri in URIS if uri not in allowed)
        for block in result.blocks:
            wanted = [edge for edge in allowed[block.uri].relations if edge.to_uri in allowed]
            assert sorted(edge.to_uri for edge in block.relations) == sorted(edge.to_uri for edge in wanted)


MALFORMED = [
    *({"filter": bad} for bad in ({}, {"eq": {}}, {"eq": {"account_id": "x"}}, {"eq": {"status": "archived"}})),
    *({"filter": {"range": {"expires_at": {"gte": 0}}}}, {"filter": {"or": []}}, {"filter": {"sql": "1=1"}}),
    *({"filter": {"eq": {"kind": text}}} for text in ("", "\0", "\ud800", "x" * 2_000)),
    *({"filter": {"under": {"uri": uri}}} for uri in ("strata://shared/../user:bob", "x", "strata://user:bob/%2e")),
    *({"owner_space": space} for space in ("", "User:Ann", "user:ann/..", "shared\n", "' OR 1=1")),
    *({"target_uri": uri} for uri in ("", "strata://shared/../user:bob/x", "strata://Shared", "strata://shared∕a")),
]


@pytest.mark.parametrize("ask", MALFORMED, ids=str)
async def test_what_is_malformed_is_an_error_before_any_look_up(shared_index: Index, ask: dict[str, Any]) -> None:
    index = CountingIndex(shared_index)
    ctx = msgspec.structs.replace(ANN, account_id=next(names))
    with pytest.raises((InvalidFilter, InvalidUri)) as refusal:
        await search(index, ctx, **ask)
    assert refusal.value.http_status == 400
    assert index.asked == []


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(caller=callers, ask=asks)
async def test_an_account_without_records_finds_nothing_of_the_others(
    shared_index: Index, caller: RequestContext, ask: dict[str, Any]
) -> None:
    ctx = msgspec.structs.replace(caller, account_id=next(names))
    try:
        assert shown(await search(shared_index, ctx, **ask)) == set()
    except RequestError as refusal:
        assert isinstance(refusal, TargetForbidden)
