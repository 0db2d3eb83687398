"""What holds for every hit of a search whatever its caller asks, and a search without its reranker (R3)."""

from dataclasses import replace
from typing import Any

from contracts.filters import Eq
from contracts.requests import SearchMemoryRequest
from contracts.stages import RerankRequest, RerankResult
from stages.chain import Chain, ChainConfig
from tests.support.chain import CTX, Recorder, hangs, stages, uris
from tests.support.fake_index import FakeIndex, record

RECORDS = [
    record("strata://shared/web/a", "deploy page", attrs={"session": ("s1",)}),
    record("strata://shared/web/b", "deploy page", attrs={"session": ("s2",)}),
]
MUST = Eq("attrs.session", "s1")


async def search(index: FakeIndex, must: Any = MUST, **fields: Any) -> set[str]:
    chain = Chain(stages(index), ChainConfig())
    return uris(await chain.search(CTX, SearchMemoryRequest(query="deploy", **fields), must))


async def test_a_condition_of_the_server_holds_for_every_hit() -> None:
    assert await search(FakeIndex(RECORDS)) == {"strata://shared/web/a"}


async def test_a_caller_can_narrow_it_and_never_get_round_it() -> None:
    index = FakeIndex(RECORDS)
    assert await search(index, filter={"eq": {"attrs.session": "s2"}}) == set()
    either = {"or": [{"eq": {"attrs.session": "s1"}}, {"eq": {"attrs.session": "s2"}}]}
    assert await search(index, filter=either) == {"strata://shared/web/a"}
    assert await search(index, None, filter=either) == {"strata://shared/web/a", "strata://shared/web/b"}


async def test_a_search_can_go_without_its_reranker() -> None:
    asked = []

    async def reranker(ctx: Any, deadline: Any, request: RerankRequest) -> RerankResult:
        asked.append(request)
        return RerankResult.as_before(request.hits)

    chain, observer = Chain(replace(stages(FakeIndex(RECORDS)), reranker=reranker), ChainConfig()), Recorder()
    answer = await chain.search(CTX, SearchMemoryRequest(query="deploy"), rerank=False)
    assert (len(answer.hits), asked, answer.degraded, observer.stages) == (2, [], (), [])
    await chain.search(CTX, SearchMemoryRequest(query="deploy"))
    assert len(asked) == 1


async def test_a_wait_for_the_reranker_can_be_cut_shorter_than_its_budget() -> None:
    chain = Chain(replace(stages(FakeIndex(RECORDS)), reranker=hangs), ChainConfig())
    answer = await chain.search(CTX, SearchMemoryRequest(query="deploy"), rerank_ms=20)
    ((part,), hits) = answer.degraded, uris(answer)
    assert part.stage == "reranker" and part.reason.startswith("RET-5041: ") and " 20 ms" in part.reason
    assert hits == {"strata://shared/web/a", "strata://shared/web/b"}
