"""What the chain answers when stages fail: each degradation named, warned of and counted (C30, design decision 3)."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded, RecallFailed, StageFailed
from contracts.records import ModelRef
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import EmbedRequest, QueryVectors, RerankRequest, RerankResult
from stages.chain import Chain, ChainConfig
from stages.guarded import BreakerConfig
from stages.run import StageBudget
from tests.support.chain import CTX, RECORDS, Recorder, fake_embedder, hangs, raises, search, stages, uris
from tests.support.fake_index import FakeIndex


def check_told(response: SearchMemoryResponse, observer: Recorder, stage: str, code: str) -> None:
    """All degradations are of this kind; each is in ``degraded``, in the warnings and counted."""
    # The second round asks a stage again, so it may be named more than once.
    assert {(part.stage, part.reason[:8]) for part in response.degraded} == {(stage, code)}
    assert {f"{part.stage}: {part.reason}" for part in response.degraded} <= set(response.trace.warnings)
    assert observer.fallbacks.count((stage, code)) == len(response.degraded)


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
    check_told(response, observer, stage, code if fault is raises else "RET-5041")
    assert "secret" not in str(response)


@pytest.mark.parametrize("fault", [raises, hangs])
async def test_a_failing_seed_search_gives_empty_hits_and_a_retryable_mark(fault: Any) -> None:
    """RET-5001, C30."""
    observer, budgets = Recorder(), {"seed_search": StageBudget(budget_ms=30, reserve_ms=0)}
    response = await search(seed_search=fault, observer=observer, config=ChainConfig(budgets=budgets))
    assert response.hits == ()
    assert response.retryable
    check_told(response, observer, "seed_search", "RET-5001" if fault is raises else "RET-5041")


async def test_a_typed_error_of_a_stage_keeps_its_own_code() -> None:
    async def both_failed(ctx: object, deadline: object, request: object) -> Any:
        raise RecallFailed("Both recalls failed.")

    async def down(ctx: object, deadline: object, request: object) -> Any:
        raise StageFailed("The stage is not there.")

    assert (await search(seed_search=both_failed)).degraded[0].reason.startswith("RET-5001")
    assert (await search(rechecker=down)).degraded[0].reason.startswith("RET-5002")


async def test_a_stage_without_room_degrades_and_the_search_goes_on() -> None:
    async def full(ctx: object, deadline: object, request: object) -> Any:
        raise Overloaded("The stage has no room.")

    observer = Recorder()
    response = await search(reranker=full, observer=observer)
    assert "strata://shared/guide" in uris(response)
    check_told(response, observer, "reranker", "RET-4291")


async def test_a_stage_whose_circuit_is_open_degrades_without_being_asked() -> None:
    observer, parts = Recorder(), replace(stages(FakeIndex(RECORDS)), expander=raises)
    chain = Chain(parts, ChainConfig(breaker=BreakerConfig(failures=1, open_ms=60_000)), observer)
    request = SearchMemoryRequest(query="deploy", top_k=1)
    await chain.search(CTX, request)
    observer.fallbacks.clear()
    response = await chain.search(CTX, request)
    assert uris(response)
    check_told(response, observer, "expander", "RET-5042")


async def test_a_reranker_that_scored_a_part_in_time_is_told_of() -> None:
    async def late(ctx: RequestContext, deadline: Deadline, request: RerankRequest) -> RerankResult:
        return RerankResult(RerankResult.as_before(request.hits).ranked, scored=1, total=3)

    observer = Recorder()
    response = await search(reranker=late, observer=observer)
    check_told(response, observer, "reranker", "RET-5041")
    assert "scored 1 of 3" in response.degraded[0].reason


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
