"""Searches one at a time, through the product's stages on a stand-in index."""

import pytest

from contracts.context import RequestContext
from contracts.errors import ConfigError, StageFailed
from contracts.records import ModelRef
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import NextActions
from contracts.trace import STAGES, Degradation, Trace
from evaluation.growth.forest import Forest
from evaluation.growth.searches import KnownTexts, NoCluster, NodeUsage, StageTimes, search
from stages.chain import Chain, ChainConfig
from tests.support.chain import RECORDS, stages
from tests.support.fake_index import FakeIndex

FOREST = Forest(records=60, tenants=2, fan_out=5, depth=3, dimensions=8)


class FakeWatch:
    """A cluster of two nodes, one of which is busy for 30 ms each time it is looked at."""

    def __init__(self) -> None:
        self._cpu_s = 5.0

    async def usage(self) -> tuple[NodeUsage, ...]:
        self._cpu_s += 0.03
        return (NodeUsage("one", self._cpu_s, 100.0, 900.0), NodeUsage("other", 7.0, 100.0, None))


async def test_every_stage_of_every_search_after_the_warm_up_is_measured() -> None:
    """Issue 9: the chain's latency by stage."""
    times = StageTimes()
    chain = Chain(stages(FakeIndex(RECORDS)), ChainConfig(), times)
    asked: list[str] = []

    async def ask(ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        asked.append(ctx.account_id)
        return await chain.search(ctx, request)

    questions = FOREST.questions(5)
    found = await search(ask, questions, 2, times, NoCluster(), 12.5)
    assert asked == [question.account_id for question in questions]
    assert found.total.count == 3
    assert list(found.stages) == list(STAGES)
    assert all(stage.times.count == 3 for stage in found.stages.values())
    assert found.cpu_ms().keys() == {*STAGES, "other"}
    assert (found.degraded, found.rss_before_mb, found.nodes) == (0, 12.5, ())
    assert found.rss_mb > 0


async def test_calls_of_one_search_add_up_and_another_search_begins_anew() -> None:
    times = StageTimes()
    seconds = iter([(0.010, 0.020), (0.005, 0.005), (0.001, 0.002)])

    async def ask(ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        for each in next(seconds):
            times.stage("expander", each, 1, 1)
        return SearchMemoryResponse(ctx.request_id, (), (), (), NextActions(), Trace())

    found = await search(ask, FOREST.questions(3), 2, times, NoCluster(), 0)
    assert found.stages["expander"].times.p50_ms == pytest.approx(3)


async def test_a_clusters_cpu_is_shared_by_the_timed_searches_and_degraded_answers_are_counted() -> None:
    questions = FOREST.questions(5)

    async def ask(ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        lacking = (Degradation("embedder", "RET-5004: down", 1),) if request.query == questions[3].text else ()
        return SearchMemoryResponse(ctx.request_id, (), (), (), NextActions(), Trace(), degraded=lacking)

    found = await search(ask, questions, 2, StageTimes(), FakeWatch(), 0)
    assert found.nodes_cpu_ms == pytest.approx(10)
    assert found.cpu_ms()["nodes"] == found.nodes_cpu_ms
    assert found.degraded == 1
    assert [node.rss_mb for node in found.nodes] == [900.0, None]


async def test_too_few_questions_are_refused() -> None:
    async def ask(ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        return SearchMemoryResponse(ctx.request_id, (), (), (), NextActions(), Trace())

    with pytest.raises(ConfigError, match="too few"):
        await search(ask, FOREST.questions(2), 2, StageTimes(), NoCluster(), 0)


async def test_questions_have_their_vectors_and_other_texts_have_none() -> None:
    questions = FOREST.questions(4)
    embedder = KnownTexts(ModelRef("synthetic", "0", 8), questions)
    found = await embedder.embed([questions[2].text, questions[0].text], "query")
    assert found.vectors.tolist() == [questions[2].vector.tolist(), questions[0].vector.tolist()]
    with pytest.raises(StageFailed):
        await embedder.embed(["none of them"], "query")
