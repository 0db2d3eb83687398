"""The parts of the knowledge base opened from the settings: the same for the graph, and for this process alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from contracts.ports import Embedder, WritableIndex
from contracts.stages import EmbedRequest, QueryVectors, SeedRequest, SeedResult, Stage
from corpora.knowledge_base.gaps import Gaps
from corpora.knowledge_base.outbox import OutboxWorker
from corpora.knowledge_base.search import HybridSearch
from corpora.knowledge_base.service import KnowledgeBase
from corpora.knowledge_base.store import Store
from database.engine import Database
from deployments.backends import open_database, open_reader, open_writer
from deployments.settings import IndexSettings, Settings
from models.load import load_embedder
from stages.embedder import EmbedderStage
from stages.redaction import Redactor
from stages.seed_search import SeedSearch, SeedSearchConfig

# Both recalls whole: fusion, and nothing before it, decides what is left out.
SEEDS = SeedSearchConfig(seeds=1000)


class LocalKnowledgeBase(NamedTuple):
    """The knowledge base in this process, and the worker that brings what is written into the index.

    Args:
        kb: Searches and writes.
        worker: Works when it is told to.
        database: The source of truth.
    """

    kb: KnowledgeBase
    worker: OutboxWorker
    database: Database


@asynccontextmanager
async def local_knowledge_base(settings: Settings) -> AsyncIterator[LocalKnowledgeBase]:
    """Load the model, open index and database, and close them at the end.

    Args:
        settings: The same as for the graph; whether the graph has a knowledge base is not looked at.

    Raises:
        ConfigError: The model can't be found or loaded, or index or database can't be opened.
    """
    config = settings.knowledge_base
    async with AsyncExitStack() as stack:
        database = await open_database(settings)
        stack.push_async_callback(database.close)
        embedder = await asyncio.to_thread(load_embedder, config.embedder)
        index = await open_reader(*location(settings))
        stack.push_async_callback(index.close)
        seeds = SeedSearch(index, SEEDS, settings.scoring)
        search = make_search(settings, database, EmbedderStage(embedder), seeds)
        worker = make_worker(settings, database, embedder)
        kb = KnowledgeBase(search, Store(database), Gaps(database), embedder, config, worker.wake)
        yield LocalKnowledgeBase(kb, worker, database)


def location(settings: Settings) -> tuple[Path, IndexSettings]:
    """Where the index of the knowledge base is, as ``deployments.backends`` opens it: beside that of all else.

    An embedded index holds the vectors of one model, so there each model has a folder of its own.
    """
    if settings.index.backend == "embedded":
        return settings.data_dir / "kb" / settings.knowledge_base.index_name, settings.index
    elastic = settings.index.elastic
    own = elastic.model_copy(update={"prefix": f"{elastic.prefix}-kb"})
    return settings.data_dir, settings.index.model_copy(update={"elastic": own})


def make_search(
    settings: Settings,
    database: Database,
    embedder: Stage[EmbedRequest, QueryVectors],
    seed_search: Stage[SeedRequest, SeedResult],
) -> HybridSearch:
    """The search over two stages, which are objects in this process or behind handles."""
    store, gaps = Store(database), Gaps(database)
    return HybridSearch(embedder, seed_search, store, gaps, settings.knowledge_base, Redactor(settings.redaction))


def make_worker(settings: Settings, database: Database, embedder: Embedder) -> OutboxWorker:
    """A worker on the outbox of a database; it opens the index for writing while it has work, and no longer."""

    @asynccontextmanager
    async def writer() -> AsyncIterator[WritableIndex]:
        index = await open_writer(*location(settings))
        try:
            yield index
        finally:
            await index.close()

    return OutboxWorker(database, writer, embedder, settings.knowledge_base)
