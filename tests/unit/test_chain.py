"""The chain: order, one deadline, degradations, codes (C1, C3, C30, design decisions 1–3 and 6)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from contracts.breaker import BreakerState
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, Overloaded, RecallFailed, StageFailed, StrataError, TargetForbidden
from contracts.records import ModelRef
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import EmbedRequest, QueryVectors
from stages.assembler import Assembler, AssemblerConfig
from stages.chain import Chain, ChainConfig, Stages
from stages.expander import Expander, ExpanderConfig
from stages.planner import Planner, PlannerConfig
from stages.rechecker import Rechecker, RecheckerConfig
from stages.reranker import Reranker, RerankerConfig
from stages.run import StageBudget
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig
from tests.support.fake_index import FAKE_MODEL, FakeIndex, record

CTX = RequestContext("acme", "user", "user:ann", request_id="r-1")
RECORDS = [
    record("strata://shared/guide", "deploy guide", has_children=True),
    record("strata://shared/guide/rollback", "rollback a deploy"),
    record("strata://user:ann/likes", "prefers short deploy windows", context_type="memory"),
    record("strata://user:bob/likes", "deploy secrets", context_type="memory"),
]


async def fake_embedder(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
    return QueryVectors(FAKE_MODEL, len(request.texts), b"\0\0\x80?\0\0\0\0" * len(request.texts))


def stages(index: FakeIndex) -> Stages:
    scoring = ScoringConfig()
    return Stages(
        planner=Planner(PlannerConfig()),
        embedder=fake_embedder,
        seed_search=SeedSearch(index, SeedSearchConfig(), scoring),
        expander=Expander(index, ExpanderConfig(), scoring),
        rechecker=Rechecker(index, RecheckerConfig()),
        reranker=Reranker(RerankerConfig(), None),
        assembler=Assembler(AssemblerConfig()),
    )


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.fallbacks: list[tuple[str, str]] = []
        self.circuits: dict[str, BreakerState] = {}

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        self.stages.append(name)

    def fallback(self, name: str, code: str) -> None:
        self.fallbacks.append((name, code))

    def circuit(self, name: str, state: BreakerState) -> None:
        self.circuits[name] = state


async def search(
    query: str = "deploy", *, index: FakeIndex | None = None, config: ChainConfig | None = None, **changes: Any
) -> SearchMemoryResponse:
    fields = {name: changes.pop(name) for name in list(changes) if name in SearchMemoryRequest.model_fields}
    observer = changes.pop("observer", None)
    parts = replace(stages(index or FakeIndex(RECORDS)), **changes)
    return await Chain(parts, config or ChainConfig(), observer).search(CTX, SearchMemoryRequest(query=query, **fields))


def uris(response: SearchMemoryResponse) -> set[str]:
    return {hit.uri for hit in response.hits}


async def raises(ctx: object, deadline: object, request: object) -> Any:
    raise RuntimeError("with a secret in it")


async def hangs(ctx: object, deadline: object, request: object) -> Any:
    await asyncio.Event().wait()


async def test_a_search_walks_all_stages_in_order_and_reads_nothing() -> None:
    """C1, section 10 acceptance 1: no L1 or L2 read."""
    index, observer = FakeIndex(RECORDS), Recorder()
    response = await search(index=index, observer=observer, top_k=3)
    assert uris(response) == {"strata://shared/guide", "strata://shared/guide/rollback", "strata://user:ann/likes"}
    assert observer.stages == [
        "planner",
        "embedder",
        "seed_search",
        "expander",
        "rechecker",
        "reranker",
        "assembler",
    ]
    assert index.reads == []
    assert all(hit.overview is None and hit.content_excerpt is None for hit in response.hits)
    assert "strata://shared/guide" in response.next_actions.recommended_read_l1_uris
    assert response.request_id == "r-1"
    assert not response.degraded


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"query": " \n"}, "RET-4001", "query"),
        ({"query": "a\0b"}, "RET-4001", "query"),
        ({"top_k": 0}, "RET-4002", "top_k"),
        ({"top_k": 51}, "RET-4002", "top_k"),
        ({"score_threshold": 1.5}, "RET-4003", "score_threshold"),
        ({"score_threshold": float("nan")}, "RET-4003", "score_threshold"),
        ({"filter": {"eq": {"nothing": "x"}}}, "RET-4004", "filter.eq"),
        ({"target_uri": "strata://shared/../x"}, "RET-4005", "target_uri"),
        ({"target_uri": "strata://user:bob/likes"}, "RET-4031", "target_uri"),
        ({"target_uri": "strata://user:bob/absent"}, "RET-4031", "target_uri"),
    ],
)
async def test_bad_input_is_refused_with_its_code_and_field_before_any_search(
    fields: dict[str, Any], code: str, field: str
) -> None:
    """C3, C21."""
    index = FakeIndex(RECORDS)
    with pytest.raises(StrataError) as caught:
        await search(**({"query": "deploy"} | fields), index=index)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert index.recalls == index.metas == []


async def test_a_forbidden_target_reads_the_same_whether_it_exists_or_not() -> None:
    """C21."""
    messages = set()
    for target in ("strata://user:bob/likes", "strata://user:bob/absent"):
        with pytest.raises(TargetForbidden) as caught:
            await search(target_uri=target)
        messages.add(str(caught.value))
    assert len(messages) == 1


async def test_an_absent_target_within_the_scope_is_ignored_with_a_warning() -> None:
    """RET-4041."""
    response = await search(target_uri="strata://shared/absent")
    assert uris(response)
    assert any(warning.startswith("RET-4041") for warning in response.trace.warnings)


@pytest.mark.parametrize("fault", [raises, hangs])
@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ("planner", "RET-5004"),
        ("embedder", "RET-5004"),
        ("expander", "RET-5004"),
        ("rechecker", "RET-5002"),
        ("reranker", "RET-5004"),
        ("assembler", "RET-5003"),
    ],
)
async def test_a_failing_stage_degrades_and_candidates_still_come_back(stage: str, code: str, fault: Any) -> None:
    """C30, C13, C14: every degradation is in trace.warnings and degraded, without the error's text."""
    observer = Recorder()
    budgets = {stage: StageBudget(budget_ms=30, reserve_ms=0)}
    response = await search(observer=observer, config=ChainConfig(budgets=budgets), **{stage: fault})
    assert "strata://shared/guide" in uris(response)
    assert "strata://user:bob/likes" not in uris(response)
    # The second round asks a stage again, so it may be named more than once.
    assert {part.stage for part in response.degraded} == {stage}
    expected = code if fault is raises else "RET-5041"
    assert response.degraded[0].reason.startswith(expected)
    assert (stage, expected) in observer.fallbacks
    assert any(warning.startswith(f"{stage}: {expected}") for warning in response.trace.warnings)
    assert "secret" not in str(response)


@pytest.mark.parametrize("fault", [raises, hangs])
async def test_a_failing_seed_search_gives_empty_hits_and_a_retryable_mark(fault: Any) -> None:
    """RET-5001, C30."""
    budgets = {"seed_search": StageBudget(budget_ms=30, reserve_ms=0)}
    response = await search(seed_search=fault, config=ChainConfig(budgets=budgets))
    assert response.hits == ()
    assert response.retryable
    assert response.degraded[0].stage == "seed_search"


async def test_a_typed_error_of_a_stage_keeps_its_own_code() -> None:
    async def both_failed(ctx: object, deadline: object, request: object) -> Any:
        raise RecallFailed("Both recalls failed.")

    async def down(ctx: object, deadline: object, request: object) -> Any:
        raise StageFailed("The stage is not there.")

    assert (await search(seed_search=both_failed)).degraded[0].reason.startswith("RET-5001")
    assert (await search(rechecker=down)).degraded[0].reason.startswith("RET-5002")


async def test_a_request_error_raised_by_a_stage_reaches_the_caller() -> None:
    async def refuses(ctx: object, deadline: object, request: object) -> Any:
        raise InvalidFilter("No such field.", field="filter")

    with pytest.raises(InvalidFilter):
        await search(seed_search=refuses)


async def test_a_stage_without_room_degrades_and_the_search_goes_on() -> None:
    async def full(ctx: object, deadline: object, request: object) -> Any:
        raise Overloaded("The stage has no room.")

    response = await search(reranker=full)
    assert "strata://shared/guide" in uris(response)
    assert response.degraded[0].reason.startswith("RET-4291")


async def test_vectors_that_the_seed_search_refused_go_no_further() -> None:
    """Design decision 9."""

    async def other_model(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        vectors = await fake_embedder(ctx, deadline, request)
        return QueryVectors(ModelRef("other", "1", 2), vectors.rows, vectors.data)

    index = FakeIndex(RECORDS)
    response = await search(index=index, embedder=other_model)
    assert "strata://shared/guide" in uris(response)
    seeds, *later = index.recalls
    assert {query.model for query in seeds} == {ModelRef("other", "1", 2)}
    assert later and all(query.vector is None for queries in later for query in queries)
    assert {part.stage for part in response.degraded} == {"seed_search"}


async def test_a_timeout_cancels_the_work_it_gave_up_on() -> None:
    cancelled = asyncio.Event()

    async def notices(ctx: object, deadline: object, request: object) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await search(expander=notices, config=ChainConfig(budgets={"expander": StageBudget(budget_ms=20, reserve_ms=0)}))
    assert cancelled.is_set()


async def test_a_callers_timeout_only_shortens_the_servers() -> None:
    seen: list[float] = []

    async def looks(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        seen.append(deadline.left())
        return await fake_embedder(ctx, deadline, request)

    config = ChainConfig(timeout_ms=1000, budgets={"embedder": StageBudget(budget_ms=60_000, reserve_ms=0)})
    for asked in (None, 600, 60_000):
        await search(embedder=looks, timeout_ms=asked, config=config)
    assert 0.6 < seen[0] <= 1
    assert seen[1] <= 0.6
    assert 0.6 < seen[2] <= 1


async def test_an_unsure_plan_is_reported_as_ret_4221() -> None:
    response = await search("weather")
    assert [query.context_type for query in response.typed_queries] == ["memory", "skill", "resource"]
    assert any(warning.startswith("RET-4221") for warning in response.trace.warnings)


async def test_too_few_hits_in_the_planned_type_widen_the_search_to_all() -> None:
    """Decision 6: limit means limit."""
    response = await search("how to deploy")
    assert "strata://shared/guide" in uris(response)
    assert len(response.typed_queries) == 3
    assert not response.degraded
    pinned = await search("deploy", planner_hints={"context_types": ["skill"]})
    assert pinned.hits == ()


async def test_drops_are_made_up_for_by_a_deeper_recall() -> None:
    """Decision 6."""
    records = [record(f"strata://shared/{n}", "deploy old" if n < 20 else "deploy") for n in range(40)]
    response = await search(
        index=FakeIndex(records),
        config=ChainConfig(limit=10),
        planner_hints={"context_types": ["resource"], "exclude_terms": ["old"]},
    )
    assert len(response.hits) == 10


async def test_thinking_comes_only_with_debug_and_a_detailed_trace() -> None:
    """C5, section 10 integration 5."""
    assert (await search(include_debug=True)).thinking_trace is None
    assert (await search(trace_level="detailed")).thinking_trace is None
    response = await search(include_debug=True, trace_level="detailed")
    assert response.thinking_trace is not None
    events = [(event.stage, event.event) for event in response.thinking_trace.events]
    assert events == [
        *[("planner", "planned")] * 3,
        ("embedder", "embedded"),
        *[("seed_search", "recalled")] * 3,
        ("expander", "expanded"),
        ("reranker", "reranked"),
        ("assembler", "assembled"),
    ]
    assert len(events) == response.trace.event_count
    assert not response.thinking_trace.truncated


async def test_a_thinking_trace_is_bounded_in_number_and_size_and_says_what_it_lacks() -> None:
    for config in (ChainConfig(max_events=2), ChainConfig(max_event_bytes=300)):
        response = await search(include_debug=True, trace_level="detailed", config=config)
        assert response.thinking_trace is not None
        *kept, last = response.thinking_trace.events
        assert [event.event for event in kept] == ["planned", "planned"]
        assert (last.event, last.detail) == ("cut", {"missing": response.trace.event_count - 2})
        assert response.thinking_trace.truncated


async def test_a_thinking_trace_holds_neither_the_query_nor_what_was_found() -> None:
    response = await search("rollback zyzzyva", include_debug=True, trace_level="detailed")
    assert "strata://shared/guide/rollback" in uris(response)
    text = str(response.thinking_trace)
    assert "zyzzyva" not in text
    assert not any(str(r["abstract"]) in text for r in RECORDS)


async def test_dropped_candidates_show_their_exclude_reason_in_the_thinking_trace() -> None:
    """C13."""
    response = await search(
        planner_hints={"exclude_terms": ["rollback"]}, include_debug=True, trace_level="detailed", top_k=1
    )
    assert response.thinking_trace is not None
    drops = [event.detail for event in response.thinking_trace.events if event.event == "dropped"]
    assert drops == [{"uri": "strata://shared/guide/rollback", "exclude_reason": "exclude_terms"}]


@pytest.mark.parametrize(
    "change", [{"owner_space": "user:bob"}, {"status": "deleted"}, {"account_id": "rival"}, {"expires_at": 1}]
)
async def test_what_became_hidden_after_the_recall_shows_nowhere(change: dict[str, Any]) -> None:
    """C20, C22: neither as a seed nor in the thinking trace, whatever hid it."""
    index = FakeIndex(RECORDS)
    before = await index.meta("acme", list(index.records))

    async def meta(account_id: str, wanted: Any) -> Any:
        index.records["strata://shared/guide/rollback"] |= change
        return await FakeIndex.meta(index, account_id, wanted)

    assert "strata://shared/guide/rollback" in before
    index.meta = meta  # type: ignore[method-assign]
    response = await search(index=index, include_debug=True, trace_level="detailed", top_k=3)
    assert "strata://shared/guide" in uris(response)
    assert "rollback" not in str(response)
    assert response.thinking_trace is not None
    drops = [event.detail for event in response.thinking_trace.events if event.event == "dropped"]
    assert drops[0] == {"exclude_reason": "unavailable"}


async def test_a_second_round_without_recall_leaves_what_the_first_one_found() -> None:
    """C30: candidates that can be returned are returned."""
    searcher = stages(FakeIndex(RECORDS)).seed_search
    calls = 0

    async def once(ctx: RequestContext, deadline: Deadline, request: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RecallFailed("Both recalls failed.")
        return await searcher(ctx, deadline, request)

    response = await search("documentation of a deploy", seed_search=once)
    assert calls == 2
    assert uris(response) == {"strata://shared/guide", "strata://shared/guide/rollback"}
    assert [query.context_type for query in response.typed_queries] == ["resource"]
    assert [(part.stage, part.reason[:8]) for part in response.degraded] == [("seed_search", "RET-5001")]
    assert not response.retryable


async def test_a_second_round_without_recall_after_an_empty_first_one_is_retryable() -> None:
    searcher = stages(FakeIndex([])).seed_search
    calls = 0

    async def once(ctx: RequestContext, deadline: Deadline, request: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RecallFailed("Both recalls failed.")
        return await searcher(ctx, deadline, request)

    response = await search("documentation of a deploy", index=FakeIndex([]), seed_search=once)
    assert response.hits == ()
    assert response.retryable


async def test_a_failing_or_partial_recall_is_told_of_the_seed_search_and_the_expander() -> None:
    """Design decision 3: each part once, with its code, in the answer, the warnings and the metrics."""
    index, observer = FakeIndex(RECORDS), Recorder()
    index.failing = {"dense": "no connection"}
    index.partial = {"keyword": "1 of 3 shards failed"}
    response = await search(index=index, observer=observer, top_k=3)
    reasons = ["RET-5001: dense recall failed: no connection", "RET-5001: keyword recall is incomplete: 1 of 3 shards"]
    found = [(part.stage, part.reason) for part in response.degraded]
    assert [stage for stage, _ in found] == ["seed_search", "seed_search", "expander", "expander"]
    assert all(reason.startswith(reasons[i % 2]) for i, (_, reason) in enumerate(found))
    assert observer.fallbacks[-4:] == [(stage, "RET-5001") for stage, _ in found]
    assert all(f"{stage}: {reason}" in response.trace.warnings for stage, reason in found)


async def test_warnings_with_a_code_are_counted_as_fallbacks() -> None:
    """C41: RET-4041 and RET-4221, though no stage is at fault."""
    observer = Recorder()
    response = await search("weather", target_uri="strata://shared/absent", observer=observer)
    assert observer.fallbacks[:2] == [("planner", "RET-4221"), ("seed_search", "RET-4041")]
    assert response.degraded == ()
