"""``strata eval corpus``: a collection through a corpus, from what its callers send to what they get.

A set with conversations goes into the memory corpus, as the dialogues of one user; any other into the web corpus, as
the pages of one session. Measured are both paths, with and without the threshold, and what the cache saves.
"""

import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np

from contracts.context import RequestContext
from contracts.errors import StageFailed
from contracts.ports import Embeddable, Embedder
from contracts.records import Document
from corpora.rag import types
from corpora.rag.build import core_over
from corpora.rag.config import CorporaConfig
from corpora.rag.core import Core
from corpora.rag.documents import SourceChunker
from corpora.rag.registry import load_adapters
from corpora.rag.requests import RetrieveRequest
from corpora.rag.store import IndexStore
from corpora.rag.types import Decision, Retrieved
from evaluation.ablation import Progress, silent
from evaluation.corpus_bodies import USER, Bodies, bodies_of
from evaluation.datasets import Dataset, Question
from evaluation.measures import DEPTH, Quality, measure
from evaluation.runner import ACCOUNT, Parts
from index.embedded.index import EmbeddedIndex
from index.embedding import embed_nodes, embedding_texts
from stages.assembler import Assembler, AssemblerConfig
from stages.chain import Chain, ChainConfig, Stages
from stages.embedder import EmbedderStage
from stages.expander import Expander
from stages.planner import Planner, PlannerConfig
from stages.reader import Reader, ReaderConfig
from stages.rechecker import Rechecker, RecheckerConfig
from stages.redaction import RedactionConfig, Redactor
from stages.reranker import Reranker
from stages.run import StageBudget
from stages.seed_search import SeedSearch

CTX = RequestContext(ACCOUNT, "user", f"user:{USER}")
# Nobody waits here: no stage may cut its work short.
_PATIENCE_MS = 3_600_000
_TEXTS = 256
_MS = 1000


class Column(msgspec.Struct, frozen=True):
    """One way to ask all queries.

    Args:
        path: Which path answered.
        threshold: Least relevance of a hit.
        quality: Of the ten best hits.
        hits: Mean number of hits, at most ten.
    """

    path: types.Path
    threshold: float
    quality: Quality
    hits: float


class CorpusReport(msgspec.Struct, frozen=True):
    """What an evaluation found.

    Args:
        dataset: Its name.
        corpus: Which corpus it went through.
        documents: Documents in the collection.
        queries: Queries asked.
        model: The embedding model, ``name@version``.
        columns: Quality by path and threshold.
        ingest_s: Seconds from bodies to a searchable index; short where it was there already.
        miss_ms: Median of a retrieval by the graph that was not remembered, milliseconds.
        hit_ms: Median of the same retrieval when it was.
    """

    dataset: str
    corpus: str
    documents: int
    queries: int
    model: str
    columns: list[Column]
    ingest_s: float
    miss_ms: float
    hit_ms: float


async def evaluate_corpus(
    folder: Path,
    dataset: Dataset,
    embedder: Embedder,
    parts: Parts,
    work: Path,
    progress: Progress = silent,
    *,
    config: CorporaConfig,
    fresh: bool = False,
) -> CorpusReport:
    """Ingest a collection through a corpus where that is not done yet, and ask its queries there.

    Args:
        folder: Where the collection lies.
        dataset: What :func:`evaluation.datasets.load` read there.
        embedder: Embeds chunks and queries.
        parts: The stages under test.
        work: Folder for the indices, one a collection, corpus and model.
        progress: Told how far it is.
        config: The corpora under test.
        fresh: Build the index anew.

    Raises:
        InvalidInput: The collection can't be read.
        StageFailed: A query was answered in part only.
    """
    bodies, model = bodies_of(folder, dataset), embedder.model
    place = work / f"{bodies.corpus}-{dataset.name}-{model.name.replace('/', '_')}-{model.version}-{model.dimensions}"
    if fresh:
        shutil.rmtree(place, ignore_errors=True)
    index = await EmbeddedIndex.open(place, parts.embedded, write=True)
    try:
        began = time.perf_counter()
        await _ingest(index, bodies, embedder, config, progress)
        ingested = time.perf_counter()
        run = _Run(index, dataset, bodies, embedder, parts, config, progress)
        thresholds = dict.fromkeys((0.0, config.retrieve.threshold))
        columns = [await run.column(path, threshold) for path in ("rag", "keyword") for threshold in thresholds]
        miss_ms, hit_ms = await run.cache()
    finally:
        await index.close()
    return CorpusReport(
        dataset=dataset.name,
        corpus=bodies.corpus,
        documents=len(dataset.passages),
        queries=len(dataset.questions),
        model=f"{model.name}@{model.version}",
        columns=columns,
        ingest_s=ingested - began,
        miss_ms=miss_ms,
        hit_ms=hit_ms,
    )


async def _ingest(
    index: EmbeddedIndex, bodies: Bodies, embedder: Embedder, config: CorporaConfig, progress: Progress
) -> None:
    """Bring all documents into the index that are not there as they are now."""
    adapter, store = load_adapters(config)[bodies.corpus], IndexStore(index)
    chunker = SourceChunker(config.ingest.chunk, config.ingest.abstracts)
    stored: dict[str, dict[str, str]] = {}
    read = embedded = 0
    for raw in bodies.ingest():
        made: dict[str, list[Document]] = {}
        for source in adapter.build_ingest_documents(CTX, raw):
            read += 1
            if source.space not in stored:
                stored[source.space] = await store.fingerprints(ACCOUNT, source.space, bodies.corpus)
            document = chunker.document(bodies.corpus, source)
            if stored[source.space].get(document.document_id) != document.fingerprint:
                made.setdefault(source.space, []).append(document)
        progress("read", read, None)
        for space, documents in made.items():
            ready = await _embedded(documents, embedder)
            await store.upsert(ACCOUNT, space, bodies.corpus, ready, embedder.model)
            embedded += sum(len(each.document.nodes) for each in ready)
            progress("write", embedded, None)
    if embedded:
        await store.optimize()
        progress("optimize", 1, 1)


async def _embedded(documents: Sequence[Document], embedder: Embedder) -> list[Embeddable]:
    nodes = [node for document in documents for node in document.nodes]
    texts = [embedding_texts(node.name, node.abstract, node.vector_texts) for node in nodes]
    vectors, _ = await embed_nodes(embedder, texts, _TEXTS, lambda _: None)
    bounds = np.cumsum([0, *(len(document.nodes) for document in documents)])
    return [
        Embeddable(document, vectors[start:end])
        for document, start, end in zip(documents, bounds, bounds[1:], strict=False)
    ]


class _Chosen:
    """A switch that stands."""

    def __init__(self, path: types.Path) -> None:
        self._decision = Decision(path)

    async def decide(self, corpus: str, user: str) -> Decision:
        """See ``corpora.rag.ports.Switch``."""
        return self._decision


class _Run:
    """All queries, again and again."""

    def __init__(
        self,
        index: EmbeddedIndex,
        dataset: Dataset,
        bodies: Bodies,
        embedder: Embedder,
        parts: Parts,
        config: CorporaConfig,
        progress: Progress,
    ) -> None:
        self._index = index
        self._dataset = dataset
        self._bodies = bodies
        self._embedder = embedder
        self._parts = parts
        self._config = config
        self._progress = progress
        self._asked = 0

    async def column(self, path: types.Path, threshold: float) -> Column:
        """Quality of a path at a threshold."""
        async with self._core(path, entries=0) as core:
            rankings: dict[str, list[str]] = {}
            hits = 0
            for question in self._dataset.questions:
                answer = await self._ask(core, question, threshold)
                hits += len(answer.hits)
                rankings[question.id] = list(dict.fromkeys(filter(None, map(self._bodies.document, answer.hits))))
        count = len(self._dataset.questions)
        return Column(path, threshold, measure(self._dataset.qrels, rankings), hits / count)

    async def cache(self) -> tuple[float, float]:
        """Median milliseconds of all queries by the graph, not remembered and remembered."""
        medians = []
        async with self._core("rag", entries=len(self._dataset.questions)) as core:
            for cached in (False, True):
                took = []
                for question in self._dataset.questions:
                    began = time.perf_counter()
                    answer = await self._ask(core, question, self._config.retrieve.threshold)
                    # Some sets ask the same twice.
                    if answer.cached is cached:
                        took.append((time.perf_counter() - began) * _MS)
                medians.append(float(np.median(took)))
        return medians[0], medians[1]

    async def _ask(self, core: Core, question: Question, threshold: float) -> Retrieved:
        request = RetrieveRequest(
            query=question.text,
            dimensions=dict(self._bodies.dimensions(question)),
            top_k=DEPTH,
            threshold=threshold,
        )
        answer = await core.retrieve(CTX, self._bodies.corpus, request)
        if answer.degraded:
            raise StageFailed(answer.degraded[0].reason, stage=answer.degraded[0].stage)
        self._asked += 1
        self._progress("search", self._asked, None)
        return answer

    @asynccontextmanager
    async def _core(self, path: types.Path, entries: int) -> AsyncIterator[Core]:
        config = self._config.model_copy(
            update={
                "retrieve": self._config.retrieve.model_copy(
                    update={"timeout_ms": _PATIENCE_MS, "rerank_timeout_ms": _PATIENCE_MS}
                ),
                "cache": self._config.cache.model_copy(update={"entries": entries, "max_age_s": _PATIENCE_MS}),
            }
        )
        core = core_over(
            self._chain(),
            Reader(self._index, self._index, self._index, ReaderConfig(), Redactor(RedactionConfig())),
            load_adapters(config),
            config=config,
            scoring=self._parts.scoring,
            model=self._embedder.model.name,
            switch=_Chosen(path),
            redactor=Redactor(RedactionConfig()),
        )
        try:
            yield core
        finally:
            await core.close()

    def _chain(self) -> Chain:
        parts, index = self._parts, self._index
        stages = Stages(
            planner=Planner(PlannerConfig()),
            embedder=EmbedderStage(self._embedder),
            seed_search=SeedSearch(index, parts.seed_search, parts.scoring),
            expander=Expander(index, parts.expander, parts.scoring),
            rechecker=Rechecker(index, RecheckerConfig()),
            reranker=Reranker(parts.reranker, parts.scorer),
            assembler=Assembler(AssemblerConfig()),
        )
        patient = dict.fromkeys(Stages.__dataclass_fields__, StageBudget(budget_ms=_PATIENCE_MS, reserve_ms=0))
        return Chain(stages, ChainConfig(timeout_ms=_PATIENCE_MS, budgets=patient, limit=parts.limit))
