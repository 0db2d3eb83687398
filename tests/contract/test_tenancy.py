"""Nothing of another tenant, space or state leaves, whatever is asked, on every backend (C20 to C22, C13).

The stages are the product's own, in this process; what may be seen is worked out here by hand, not by the code under
test.
"""

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, InvalidUri, RequestError, TargetForbidden
from contracts.filters import matches, parse_filter
from contracts.hits import Level, Relation
from contracts.ports import Embeddable, NodeMeta, Recalled, RecallQuery
from contracts.records import Document, Node
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import ReadRequest
from contracts.uri import is_under, parent_of, space_of
from models.deterministic import DeterministicEmbedder
from stages.assembler import Assembler, AssemblerConfig
from stages.chain import Chain, ChainConfig, Stages
from stages.embedder import EmbedderStage
from stages.expander import Expander, ExpanderConfig
from stages.planner import Planner, PlannerConfig
from stages.reader import Reader, ReaderConfig
from stages.rechecker import Rechecker, RecheckerConfig
from stages.redaction import RedactionConfig, Redactor
from stages.reranker import Reranker, RerankerConfig
from stages.run import StageBudget
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig
from tests.contract.conftest import Index
from tests.contract.corpus import record, vectors

EMBEDDER = DeterministicEmbedder(8)
PAST, FUTURE = 1, 2**52
SOURCE = "source"
SPACES = ("shared", "user:ann", "user:bob", "agent:planner", "team:x")
PATHS = ("a", "a/b", "a/b/c", "ab", "d/e", "文")
URIS = [f"strata://{space}/{path}" for space in SPACES for path in PATHS]
names = (f"tenant {number}" for number in itertools.count())
# Nobody waits here, on a machine however busy: a stage that gives up would hide what it would have let pass.
PATIENT = {stage: StageBudget(budget_ms=120_000, reserve_ms=0) for stage in Stages.__dataclass_fields__}


class CountingIndex:
    """An index that notes which look-ups reach it, and can be made to show what it held earlier."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.asked: list[Any] = []
        self._kept: list[list[Recalled]] | None = None

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        self.asked.append(queries)
        if self._kept:
            return self._kept[min(len(self.asked), len(self._kept)) - 1]
        return await self._index.recall(queries, deadline)

    async def lag(self, search: Callable[[], Awaitable[object]]) -> None:
        """From now on a search finds what it finds now, however the records change: the index lags behind."""
        self.asked, kept = [], []
        recall = self.recall

        async def keep(queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
            kept.append(await recall(queries, deadline))
            return kept[-1]

        self.recall = keep  # type: ignore[method-assign]
        await search()
        self.recall, self.asked, self._kept = recall, [], kept  # type: ignore[method-assign]

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        self.asked.append(uris)
        return await self._index.meta(account_id, uris)

    async def model(self) -> Any:
        return await self._index.model()

    async def read(self, account_id: str, uris: Sequence[str], level: Level) -> dict[str, str]:
        if uris:
            self.asked.append(uris)
        return await self._index.read(account_id, uris, level)

    async def edges(self, account_id: str, uri: str, limit: int) -> list[Relation]:
        self.asked.append(uri)
        return await self._index.edges(account_id, uri, limit)


def chain(index: Any, *, limit: int = 100, candidates: int = 100) -> Chain:
    scoring = ScoringConfig()
    stages = Stages(
        planner=Planner(PlannerConfig()),
        embedder=EmbedderStage(EMBEDDER),
        seed_search=SeedSearch(index, SeedSearchConfig(), scoring),
        expander=Expander(index, ExpanderConfig(), scoring),
        rechecker=Rechecker(index, RecheckerConfig(candidates=candidates)),
        reranker=Reranker(RerankerConfig()),
        assembler=Assembler(AssemblerConfig()),
    )
    return Chain(stages, ChainConfig(timeout_ms=600_000, budgets=PATIENT, limit=limit))


def reader(index: Any) -> Reader:
    return Reader(index, index, index, ReaderConfig(), Redactor(RedactionConfig()))


async def search(index: Any, ctx: RequestContext, **fields: Any) -> SearchMemoryResponse:
    answer = await chain(index).search(ctx, SearchMemoryRequest(**({"query": "common", "top_k": 50} | fields)))
    assert not answer.degraded
    return answer


def shown(answer: SearchMemoryResponse) -> set[str]:
    """All URIs that an answer names anywhere."""
    found = {hit.uri for hit in answer.hits}
    advised = answer.next_actions
    others = {*advised.recommended_read_l1_uris, *advised.recommended_read_l2_uris, *(s.uri for s in answer.seed_hits)}
    traced = {
        event.detail["uri"]
        for event in (answer.thinking_trace.events if answer.thinking_trace else ())
        if "uri" in event.detail
    }
    assert others | traced <= found
    return found


def made(uri: str, **changes: Any) -> Node:
    parent = parent_of(uri) if uri.count("/") > 3 else ""
    plain = Node(uri, parent, uri.rpartition("/")[2], "section", "resource", "guide", "common words", "l1", "l2")
    return msgspec.structs.replace(plain, **changes)


async def store(index: Index, account: str, nodes: Sequence[Node]) -> None:
    embeddable = Embeddable(Document("d", str(time.perf_counter_ns()), tuple(nodes)), vectors(len(nodes)))
    await index.put(account, SOURCE, [embeddable], EMBEDDER.model)


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


ANN = RequestContext("", "user", "user:ann", spaces=("team:x",))
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


@pytest.fixture
async def tenant(shared_index: Index) -> RequestContext:
    """Ann, with records of hers, of her team, of all, and of Bob."""
    ctx = msgspec.structs.replace(ANN, account_id=next(names))
    await store(shared_index, ctx.account_id, [made(uri) for uri in TREE])
    return ctx


TREE = ["strata://shared/a", "strata://user:ann/a", "strata://user:ann/a/b", "strata://team:x/a", "strata://user:bob/a"]
OWN = set(TREE[:-1])


@pytest.mark.parametrize("space", ["user:bob", "nobody"])
async def test_a_space_out_of_scope_narrows_to_nothing_whether_it_exists_or_not(
    shared_index: Index, tenant: RequestContext, space: str
) -> None:
    """C20: owner_space is one more condition, so the answer is empty, as it is for an empty space."""
    answer = await search(shared_index, tenant, owner_space=space)
    assert (answer.hits, answer.seed_hits, answer.trace.warnings) == (
        (),
        (),
        (await search(shared_index, tenant, owner_space="agent:none")).trace.warnings,
    )


@pytest.mark.parametrize(
    "uri", ["strata://user:bob/a", "strata://user:bob/none", "strata://nobody/a", "strata://nobody"]
)
async def test_a_forbidden_uri_costs_no_look_up_and_reads_the_same_whether_it_exists_or_not(
    shared_index: Index, tenant: RequestContext, uri: str
) -> None:
    """C21, C22."""
    index = CountingIndex(shared_index)
    with pytest.raises(TargetForbidden) as refusal:
        await search(index, tenant, target_uri=uri)
    assert (refusal.value.code, refusal.value.message) == ("RET-4031", "You may not search there.")
    for level in ("L1", "L2"):
        result = await reader(index)(tenant, Deadline.after(60), ReadRequest((uri,), level))
        assert (result.blocks, result.forbidden) == ((), (uri,))
    assert index.asked == []


HIDDEN = {"archived": {"status": "archived"}, "expired": {"expires_at": PAST}, "gone": None}


@pytest.mark.parametrize("uri", ["strata://user:ann/a", "strata://shared/a"])
async def test_within_the_scope_absent_archived_and_expired_are_one(
    shared_index: Index, tenant: RequestContext, uri: str
) -> None:
    """C21, C22: by the answer and by the look-ups."""
    answers = []
    for changes in HIDDEN.values():
        nodes = [made(other) for other in TREE if not is_under(other, uri)]
        hidden = [made(uri, **changes)] if changes else []
        await store(shared_index, tenant.account_id, [*nodes, *hidden])
        index = CountingIndex(shared_index)
        found = await search(index, tenant, target_uri=uri)
        result = await reader(index)(tenant, Deadline.after(60), ReadRequest((uri,), "L2"))
        answers.append((shown(found), found.trace.warnings, result.blocks, result.forbidden, len(index.asked)))
    assert answers[0] == answers[1] == answers[2]
    assert any(warning.startswith("RET-4041") for warning in answers[0][1])


async def test_a_grant_that_was_revoked_hides_its_records_from_the_next_request_on(
    shared_index: Index, tenant: RequestContext
) -> None:
    """A key's spaces are read with each request: nothing of them is kept."""
    assert shown(await search(shared_index, tenant)) == OWN
    revoked = msgspec.structs.replace(tenant, spaces=())
    assert shown(await search(shared_index, revoked)) == OWN - {"strata://team:x/a"}
    with pytest.raises(TargetForbidden):
        await search(shared_index, revoked, target_uri="strata://team:x/a")
    result = await reader(shared_index)(revoked, Deadline.after(60), ReadRequest(("strata://team:x/a",)))
    assert result.blocks == ()


@pytest.mark.parametrize("reason", HIDDEN)
async def test_a_record_hidden_a_moment_ago_does_not_show_though_the_index_still_has_it(
    shared_index: Index, tenant: RequestContext, reason: str
) -> None:
    """Design decision 5: neither as a hit, nor as a seed, nor in what is told about dropped candidates."""
    index, uri = CountingIndex(shared_index), "strata://user:ann/a/b"
    ask = {"include_debug": True, "trace_level": "detailed"}
    await index.lag(lambda: search(index, tenant, **ask))
    changes = HIDDEN[reason]
    hidden = [made(uri, **changes)] if changes else []
    await store(shared_index, tenant.account_id, [*(made(other) for other in TREE if other != uri), *hidden])
    answer = await search(index, tenant, **ask)
    assert shown(answer) == OWN - {uri}
    assert uri not in str(answer)
    assert answer.thinking_trace is not None
    assert any(event.event == "dropped" for event in answer.thinking_trace.events)


async def test_a_record_that_no_longer_matches_the_callers_own_filter_does_not_show_either(
    shared_index: Index, tenant: RequestContext
) -> None:
    index, uri = CountingIndex(shared_index), "strata://user:ann/a/b"
    ask = {"filter": {"not": {"eq": {"tags": "private"}}}, "time_range": {"end": 5}}
    await index.lag(lambda: search(index, tenant, **ask))
    changed = {uri: {"tags": ("private",)}, "strata://shared/a": {"updated_at": 6}}
    await store(shared_index, tenant.account_id, [made(other, **changed.get(other, {})) for other in TREE])
    answer = await search(index, tenant, **ask)
    assert {hit.uri for hit in answer.hits} == OWN - changed.keys()


async def test_the_answer_is_full_though_the_rechecker_drops_most_candidates(shared_index: Index) -> None:
    """Design decision 6: ``limit`` is filled after drops."""
    ctx = RequestContext(next(names), "admin")
    nodes = [made(f"strata://shared/{n:03}", abstract="common common old" if n < 80 else "common") for n in range(100)]
    await store(shared_index, ctx.account_id, nodes)
    request = SearchMemoryRequest.model_validate({"query": "common", "planner_hints": {"exclude_terms": ["old"]}})
    answer = await chain(shared_index, limit=25, candidates=10).search(ctx, request)
    assert len(answer.hits) == request.top_k
    assert all(int(hit.uri[-3:]) >= 80 for hit in answer.hits)


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
