"""What each stage adds, with stand-in stages whose answers are known."""

import numpy as np
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.hits import NodeHit, ScoreBreakdown
from contracts.records import ModelRef
from contracts.stages import (
    EmbedRequest,
    ExpandRequest,
    ExpandResult,
    QueryVectors,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
)
from contracts.trace import Degradation
from evaluation.ablation import Setup, ablate
from evaluation.datasets import Dataset, Passage, Question

ROOT = "strata://shared/set"
DATASET = Dataset(
    name="set",
    passages=tuple(Passage(name, name, conv="c") for name in "abc"),
    questions=tuple(Question(f"q{i}", f"question {i}", conv="c") for i in range(3)),
    qrels={f"q{i}": {"a": 1} for i in range(3)},
)


def hit(path: str, query: int) -> NodeHit:
    return NodeHit(
        uri=f"{ROOT}/{path}",
        parent_uri=ROOT,
        name=path,
        kind="record",
        category="",
        owner_space="shared",
        context_type="memory",
        depth=1,
        abstract="",
        has_overview=False,
        has_content=False,
        has_children=False,
        score=0.0,
        scores=ScoreBreakdown(),
        match_reason="",
        query=query,
    )


class FakeEmbedder:
    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        assert request.role == "query"
        return QueryVectors.pack(ModelRef("fake", "1", 2), np.ones((len(request.texts), 2), dtype=np.float32))


class FakeSeedSearch:
    """Words find c, vectors find b and then a, both together a chunk of a."""

    def __init__(self, degraded: bool = False) -> None:
        self.requests: list[SeedRequest] = []
        self._degraded = degraded

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: SeedRequest) -> SeedResult:
        self.requests.append(request)
        worded = bool(request.queries[0].text)
        paths = ["c"] if request.vectors is None else ["a/chunk-1", "a/chunk-2", "c"] if worded else ["b", "a"]
        hits = [[hit(path, i) for path in paths] for i in range(len(request.queries))]
        degraded = (Degradation("seed_search", "RET-5001: dense recall failed", 0),) if self._degraded else ()
        return SeedResult(hits, more=False, degraded=degraded)


class FakeExpander:
    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: ExpandRequest) -> ExpandResult:
        return ExpandResult([[hit("no-document", i), *found] for i, found in enumerate(request.hits)])


class FakeReranker:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: RerankRequest) -> RerankResult:
        self.sizes.append(len(request.queries))
        answer = RerankResult.as_before(request.hits)
        return RerankResult([found[::-1] for found in answer.ranked])


def setup(seed_search: FakeSeedSearch, reranker: FakeReranker | None = None, batch: int = 2) -> Setup:
    return Setup(
        ctx=RequestContext("eval", role="admin"),
        context_type="memory",
        embedder=FakeEmbedder(),
        seed_search=seed_search,
        expander=FakeExpander(),
        reranker=reranker,
        documents={f"{ROOT}/{name}": name for name in "abc"},
        targets={"c": ROOT},
        batch=batch,
    )


async def test_each_column_is_measured_on_its_own_ranking() -> None:
    columns = await ablate(DATASET, setup(FakeSeedSearch(), FakeReranker()))
    ndcg = {column.name: round(column.quality.ndcg, 3) for column in columns}
    # Found at no, the second, the first, the first and, turned around, the second place.
    assert ndcg == {"BM25": 0.0, "dense": 0.631, "fused": 1.0, "+ expansion": 1.0, "+ rerank": 0.631}


async def test_parts_count_for_their_document_and_other_nodes_for_nothing() -> None:
    columns = await ablate(DATASET, setup(FakeSeedSearch()))
    assert [column.name for column in columns] == ["BM25", "dense", "fused", "+ expansion"]
    assert all(column.quality.recall == 1.0 for column in columns[1:])


async def test_every_query_is_restricted_to_its_conversation_and_type() -> None:
    seeds = FakeSeedSearch()
    await ablate(DATASET, setup(seeds))
    queries = [query for request in seeds.requests for query in request.queries]
    assert {query.target_uri for query in queries} == {ROOT}
    assert {query.context_type for query in queries} == {"memory"}


async def test_queries_travel_in_batches_but_are_reranked_one_by_one() -> None:
    seeds, reranker = FakeSeedSearch(), FakeReranker()
    await ablate(DATASET, setup(seeds, reranker, batch=2))
    assert [len(request.queries) for request in seeds.requests] == [2, 2, 2, 1, 1, 1]
    assert reranker.sizes == [1, 1, 1]


async def test_a_degraded_recall_is_no_figure_but_an_error() -> None:
    with pytest.raises(RecallFailed, match="dense recall failed"):
        await ablate(DATASET, setup(FakeSeedSearch(degraded=True)))
