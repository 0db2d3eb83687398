"""What each stage adds: the same queries through the stages of the product, stopped after each."""

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.hits import NodeHit
from contracts.query import ContextType, TypedQuery
from contracts.stages import (
    EmbedRequest,
    ExpandRequest,
    ExpandResult,
    QueryVectors,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
    Stage,
)
from contracts.uri import parent_of
from evaluation.datasets import Dataset, Question
from evaluation.measures import DEPTH, Quality, measure

# Nobody waits here: no stage may cut its work short.
_PATIENCE_S = 3600.0

Result = TypeVar("Result")


class Progress(Protocol):
    """Told how far an evaluation is."""

    def __call__(self, phase: str, done: int, total: int | None, /) -> None:
        """``search`` counts queries; the other phases are those of the ingest."""
        ...


def silent(phase: str, done: int, total: int | None, /) -> None:
    """A progress that nobody looks at."""


class Setup(msgspec.Struct, frozen=True):
    """The stages under test and what they search.

    Args:
        ctx: Who searches.
        context_type: What the collection was ingested as; planning is not under test.
        embedder: Embeds queries.
        seed_search: Finds seeds.
        expander: Walks the tree.
        reranker: Reorders; ``None`` leaves the column out.
        documents: Document id by the URI of its node; URIs below belong to the same document.
        targets: URI to search under by conversation; empty when the set has none.
        limit: Candidates from each recall.
        batch: Queries that go through a stage together.
    """

    ctx: RequestContext
    context_type: ContextType
    embedder: Stage[EmbedRequest, QueryVectors]
    seed_search: Stage[SeedRequest, SeedResult]
    expander: Stage[ExpandRequest, ExpandResult]
    reranker: Stage[RerankRequest, RerankResult] | None
    documents: Mapping[str, str]
    targets: Mapping[str, str]
    limit: int = 100
    batch: int = 32

    def query(self, question: Question) -> TypedQuery:
        """A question as the planner would have it, within its conversation."""
        target = self.targets[question.conv] if question.conv else None
        return TypedQuery(question.text, self.context_type, target_uri=target, top_k=DEPTH)

    def document(self, uri: str) -> str | None:
        """The document that a node is, or is a part of."""
        while uri and uri not in self.documents:
            uri = parent_of(uri)
        return self.documents.get(uri)


class Column(msgspec.Struct, frozen=True):
    """One row of the ablation.

    Args:
        name: Which stages ran.
        quality: What came out.
        ms: Mean time a query spent in the stage added, milliseconds, all queries of a batch sharing its time.
    """

    name: str
    quality: Quality
    ms: float


async def ablate(dataset: Dataset, setup: Setup, progress: Progress = silent) -> list[Column]:
    """Run all queries of a collection through the stages.

    Args:
        dataset: The collection.
        setup: The stages, and where its documents are.
        progress: Told how many queries are done.

    Returns:
        BM25, dense, fused (the seed search), + expansion and, where there is a reranker, + rerank.
    """
    run = _Run(dataset, setup)
    for start in range(0, len(dataset.questions), setup.batch):
        batch = dataset.questions[start : start + setup.batch]
        await run.batch(batch)
        progress("search", start + len(batch), len(dataset.questions))
    return run.columns()


class _Run:
    """Rankings by column by query, and seconds by column."""

    def __init__(self, dataset: Dataset, setup: Setup) -> None:
        self._dataset = dataset
        self._setup = setup
        self._rankings: dict[str, dict[str, list[str]]] = {name: {} for name in _columns(setup)}
        self._seconds = dict.fromkeys(("embed", *self._rankings), 0.0)

    async def batch(self, questions: Sequence[Question]) -> None:
        ctx, limit = self._setup.ctx, self._setup.limit
        queries = tuple(map(self._setup.query, questions))
        # Without words only the vectors can find anything, as without vectors only the words can.
        wordless = tuple(msgspec.structs.replace(query, text="") for query in queries)
        texts = tuple(query.text for query in queries)
        vectors = await self._timed("embed", self._setup.embedder(ctx, patient(), EmbedRequest(texts)))

        await self._seeds("BM25", questions, SeedRequest(queries, None, None, limit))
        await self._seeds("dense", questions, SeedRequest(wordless, vectors, None, limit))
        hits = await self._seeds("fused", questions, SeedRequest(queries, vectors, None, limit))
        expand = ExpandRequest(queries, vectors, None, hits)
        hits = (await self._timed("+ expansion", self._setup.expander(ctx, patient(), expand))).hits
        self._note("+ expansion", questions, hits)
        if self._setup.reranker:
            for question, query, found in zip(questions, queries, hits, strict=True):
                # One by one: the reranker takes the best candidates of a whole request.
                rerank = RerankRequest((query,), [found])
                reranked = await self._timed("+ rerank", self._setup.reranker(ctx, patient(), rerank))
                self._note("+ rerank", [question], reranked.of([found]))

    def columns(self) -> list[Column]:
        count = len(self._dataset.questions)
        return [
            Column(name, measure(self._dataset.qrels, rankings), self._seconds[name] * 1000 / count)
            for name, rankings in self._rankings.items()
        ]

    async def _seeds(self, name: str, questions: Sequence[Question], request: SeedRequest) -> list[list[NodeHit]]:
        found = await self._timed(name, self._setup.seed_search(self._setup.ctx, patient(), request))
        if found.degraded:
            raise RecallFailed(f"{name}: {found.degraded[0].reason}", stage="seed_search")
        self._note(name, questions, found.hits)
        return found.hits

    def _note(self, name: str, questions: Sequence[Question], hits: Sequence[Sequence[NodeHit]]) -> None:
        for question, found in zip(questions, hits, strict=True):
            documents = (self._setup.document(hit.uri) for hit in found)
            self._rankings[name][question.id] = list(dict.fromkeys(filter(None, documents)))[:DEPTH]

    async def _timed(self, name: str, work: Awaitable[Result]) -> Result:
        started = time.perf_counter()
        try:
            return await work
        finally:
            self._seconds[name] += time.perf_counter() - started


def _columns(setup: Setup) -> list[str]:
    return ["BM25", "dense", "fused", "+ expansion", *(["+ rerank"] if setup.reranker else [])]


def patient() -> Deadline:
    """A deadline for those whom nobody waits for."""
    return Deadline.after(_PATIENCE_S)
