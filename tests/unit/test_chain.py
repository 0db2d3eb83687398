"""The chain: order, checks, one deadline, a second round (C1, C3, design decisions 1–3 and 6)."""

import asyncio
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, StrataError, TargetForbidden
from contracts.stages import EmbedRequest, QueryVectors
from stages.chain import ChainConfig
from stages.run import StageBudget
from tests.support.chain import RECORDS, Recorder, fake_embedder, search, uris
from tests.support.fake_index import FakeIndex, record


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


async def test_a_request_error_raised_by_a_stage_reaches_the_caller() -> None:
    async def refuses(ctx: object, deadline: object, request: object) -> Any:
        raise InvalidFilter("No such field.", field="filter")

    with pytest.raises(InvalidFilter):
        await search(seed_search=refuses)


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
