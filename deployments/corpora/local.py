"""Corpora in this process, without Ray: for notebooks, ``strata ingest --in-process`` and the like (decision 1)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from contracts.errors import StageFailed
from corpora.rag.worker import IngestWorker
from deployments.backends import open_database
from deployments.corpora.events import Observer, Silent
from deployments.corpora.opening import make_worker, open_corpora
from deployments.corpora.service import Corpora
from deployments.local import open_local
from deployments.settings import Settings


class LocalCorpora(NamedTuple):
    """Corpora, and the worker that brings what they take in into the index.

    Args:
        corpora: Take in and retrieve.
        worker: Works when it is told to.
    """

    corpora: Corpora
    worker: IngestWorker

    async def work(self) -> None:
        """Bring into the index what is due.

        Raises:
            StageFailed: Something keeps it from that; what was taken in is kept.
        """
        await self.worker.drain()
        if self.worker.trouble:
            raise StageFailed(
                f"What was taken in can't be written yet: {self.worker.trouble}",
                stage="ingest",
                remedy="It is kept, and written by the next strata ingest or the service.",
            )


@asynccontextmanager
async def local_corpora(settings: Settings, observer: Observer | None = None) -> AsyncIterator[LocalCorpora]:
    """Load the models, open index and database, and close them at the end.

    Args:
        settings: The same as for the graph.
        observer: Told of each action.

    Raises:
        ConfigError: As ``open_local`` and ``open_database``.
    """
    async with AsyncExitStack() as stack:
        database = await open_database(settings)
        stack.push_async_callback(database.close)
        service = await open_local(settings)
        stack.push_async_callback(service.close)
        corpora = await open_corpora(settings, database, service, observer or Silent())
        stack.push_async_callback(corpora.close)
        yield LocalCorpora(corpora, make_worker(settings, database, service.embedder))
