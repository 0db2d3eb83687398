"""``strata eval``: a collection through the real ingest into an index of its own, then through the real stages."""

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from contracts.context import RequestContext
from contracts.errors import InvalidInput
from contracts.ports import Embedder, PairScorer
from evaluation.ablation import Column, Progress, Setup, ablate, silent
from evaluation.collection import context_type, place, source_of
from evaluation.datasets import Dataset
from index.embedded.config import EmbeddedConfig
from index.embedded.index import EmbeddedIndex
from index.ingest import Ingest, IngestConfig
from stages.embedder import EmbedderStage
from stages.expander import Expander, ExpanderConfig
from stages.reranker import Reranker, RerankerConfig
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig

ACCOUNT = "eval"
ENGLISH, CHINESE = "all-MiniLM-L6-v2", "bge-small-zh-v1.5"
# Enough text to tell the language from.
_SAMPLE = 200


class Parts(msgspec.Struct, frozen=True):
    """The configuration under test; ``limit`` is the chain's, and ``scorer`` is needed when the reranker is on."""

    ingest: IngestConfig
    embedded: EmbeddedConfig
    seed_search: SeedSearchConfig
    expander: ExpanderConfig
    scoring: ScoringConfig
    reranker: RerankerConfig
    limit: int = 100
    scorer: PairScorer | None = None


class Report(msgspec.Struct, frozen=True):
    """What an evaluation found.

    Args:
        dataset: Its name.
        documents: Documents in the collection.
        queries: Queries asked.
        model: The embedding model, ``name@version``.
        columns: Quality and time by stage.
        ingest_s: Seconds for the ingest; short when the index was there already.
        search_s: Seconds for all queries through all columns.
        nodes: Nodes in the index.
        index_bytes: Size of the index on disk.
    """

    dataset: str
    documents: int
    queries: int
    model: str
    columns: list[Column]
    ingest_s: float
    search_s: float
    nodes: int
    index_bytes: int


def embedder_for(dataset: Dataset) -> str:
    """The catalog's model for the language that most of a collection is written in."""
    text = "".join(passage.text for passage in dataset.passages[:_SAMPLE])
    letters = sum(char.isalpha() for char in text)
    chinese = sum("一" <= char <= "鿿" for char in text)
    return CHINESE if 2 * chinese > letters else ENGLISH


async def evaluate(
    folder: Path,
    dataset: Dataset,
    embedder: Embedder,
    parts: Parts,
    work: Path,
    progress: Progress = silent,
    *,
    fresh: bool = False,
) -> Report:
    """Ingest a collection where that is not done yet, and measure the stages on its queries.

    Args:
        folder: Where the collection lies.
        dataset: What :func:`evaluation.datasets.load` read there.
        embedder: Embeds documents and queries.
        parts: The configuration under test.
        work: Folder for the indices, one a collection and model. What is there and unchanged is used again.
        progress: Told how far it is.
        fresh: Build the index anew.

    Raises:
        InvalidInput: The collection could not be ingested whole.
    """
    async with prepared(folder, dataset, embedder, parts, work, progress, fresh=fresh) as ready:
        searching = time.perf_counter()
        columns = await ablate(dataset, ready.setup, progress)
        searched = time.perf_counter()
        stats = await ready.index.stats()
    return Report(
        dataset=dataset.name,
        documents=len(dataset.passages),
        queries=len(dataset.questions),
        model=f"{embedder.model.name}@{embedder.model.version}",
        columns=columns,
        ingest_s=ready.ingest_s,
        search_s=searched - searching,
        nodes=sum(stats.nodes.get(ACCOUNT, {}).values()),
        index_bytes=stats.bytes,
    )


@dataclass(frozen=True)
class Prepared:
    """A collection in an index of its own, the stages to search it with, and how long the ingest took."""

    index: EmbeddedIndex
    setup: Setup
    ingest_s: float


@asynccontextmanager
async def prepared(
    folder: Path,
    dataset: Dataset,
    embedder: Embedder,
    parts: Parts,
    work: Path,
    progress: Progress = silent,
    *,
    fresh: bool = False,
) -> AsyncIterator[Prepared]:
    """Ingest a collection where that is not done yet, and close its index at the end; see :func:`evaluate`."""
    model = embedder.model
    place_of_index = work / f"{dataset.name}-{model.name.replace('/', '_')}-{model.version}-{model.dimensions}"
    if fresh:
        shutil.rmtree(place_of_index, ignore_errors=True)
    source = source_of(folder, dataset, parts.ingest)
    index = await EmbeddedIndex.open(place_of_index, parts.embedded, write=True)
    try:
        started = time.perf_counter()
        report = await Ingest(index, index, embedder, parts.ingest).run(ACCOUNT, source, progress)
        if report.failed:
            first = report.problems[0]
            raise InvalidInput(f"{report.failed} documents failed; {first.file}, line {first.line}: {first.message}")
        ingested = time.perf_counter()
        placed = place(dataset, source)
        setup = Setup(
            ctx=RequestContext(ACCOUNT, role="admin"),
            context_type=context_type(dataset),
            embedder=EmbedderStage(embedder),
            seed_search=SeedSearch(index, parts.seed_search, parts.scoring),
            expander=Expander(index, parts.expander, parts.scoring),
            reranker=Reranker(parts.reranker, parts.scorer) if parts.reranker.kind != "none" else None,
            documents=placed.documents,
            targets=placed.targets,
            limit=parts.limit,
        )
        yield Prepared(index, setup, ingested - started)
    finally:
        await index.close()
