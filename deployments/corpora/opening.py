"""The parts of corpora opened from the settings: the same for the graph, and for this process alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from contracts.ports import Embedder, WritableIndex
from corpora.rag.batch import Outcome
from corpora.rag.build import core_over
from corpora.rag.documents import SourceChunker
from corpora.rag.jobs import Jobs
from corpora.rag.queue import IngestQueue
from corpora.rag.registry import load_adapters
from corpora.rag.rollout import Rollout
from corpora.rag.worker import IngestWorker, silent
from database.engine import Database
from deployments.backends import open_writer
from deployments.corpora.events import Observer
from deployments.corpora.service import Corpora
from deployments.service import Service
from deployments.settings import Settings
from models.deterministic import NAME
from stages.redaction import Redactor


async def open_corpora(
    settings: Settings,
    database: Database,
    service: Service,
    observer: Observer,
    wake: Callable[[], None] = lambda: None,
) -> Corpora:
    """Open the corpora of the settings over a service that searches and reads.

    Args:
        settings: All of them.
        database: Where the queue and the switches lie; stays the caller's to close.
        service: The graph's two walks.
        observer: Told of each action.
        wake: Tells the worker that there is work; must not fail.

    Raises:
        ConfigError: A corpus can't be loaded.
    """
    config = settings.corpora
    adapters = load_adapters(config)
    rollout = Rollout(database, config.rollout)
    await rollout.start()
    core = core_over(
        service.chain,
        service.reader,
        adapters,
        config=config,
        scoring=settings.scoring,
        model=NAME if settings.embedder.backend == "deterministic" else settings.embedder.name,
        switch=rollout,
        redactor=Redactor(settings.redaction),
        observer=observer,
    )
    queue = IngestQueue(database, config.ingest)

    async def close() -> None:
        await core.close()
        await rollout.close()

    return Corpora(adapters, core, queue, config, observer, wake, close)


def make_worker(
    settings: Settings, database: Database, embedder: Embedder, told: Callable[[Outcome], None] = silent
) -> IngestWorker:
    """A worker on the queue of a database, writing into the index of the settings.

    Args:
        settings: All of them.
        database: Where the queue lies.
        embedder: Makes vectors.
        told: Told how each try of a change ended.
    """
    config = settings.corpora.ingest

    @asynccontextmanager
    async def writer() -> AsyncIterator[WritableIndex]:
        index = await open_writer(settings.data_dir, settings.index)
        try:
            yield index
        finally:
            await index.close()

    chunker = SourceChunker(config.chunk, config.abstracts)
    return IngestWorker(Jobs(database, config), chunker, embedder, writer, config, told)
