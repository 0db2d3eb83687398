"""The deployment that brings acknowledged sources into the index, and how an ingress wakes it."""

import asyncio
from contextlib import suppress
from typing import Any, ClassVar

from ray.serve.handle import DeploymentHandle

from contracts.errors import StrataError
from contracts.stages import EmbedRequest, QueryVectors
from corpora.rag.queue import IngestQueue
from deployments.backends import open_database
from deployments.corpora.embedder import StageEmbedder
from deployments.corpora.observer import BacklogMetrics, IngestProgress
from deployments.corpora.opening import make_worker
from deployments.settings import Settings
from deployments.transport import RemoteStage

_WAKE_S = 5.0


class IngestReplica:
    """Runs a worker for as long as it lives.

    A replica that is shut down finishes what it is at, or gives it back; one that is killed leaves it to the next.

    Args:
        settings: All of them.
        embedder: The graph's.
    """

    name: ClassVar[str] = "ingest"

    async def __init__(self, settings: Settings, embedder: DeploymentHandle[Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        config = settings.corpora
        self._database = await open_database(settings)
        stage = RemoteStage[EmbedRequest, QueryVectors](embedder, QueryVectors)
        vectors = StageEmbedder(stage, config.serving.embed_texts, config.serving.embed_timeout_s)
        self._worker = make_worker(settings, self._database, vectors, IngestProgress(config.enabled).told)
        self._queue = IngestQueue(self._database, config.ingest)
        self._metrics = BacklogMetrics(config.enabled)
        self._running = asyncio.create_task(self._worker.run())
        self._counting = asyncio.create_task(self._count(config.serving.backlog_s))

    async def __del__(self) -> None:
        """Awaited by Serve before the replica goes."""
        self._counting.cancel()
        self._worker.stop()
        await asyncio.wait([self._running, self._counting])
        await self._database.close()

    async def wake(self) -> None:
        """There may be work."""
        self._worker.wake()

    async def describe(self) -> None:
        """Asked by ``/readyz``: a replica answers once it is up."""

    async def check_health(self) -> None:
        """Serve replaces a replica whose worker has ended."""
        if self._running.done():
            raise RuntimeError("The worker has ended.")

    async def _count(self, every_s: float) -> None:
        while True:
            with suppress(StrataError):
                self._metrics.show(await self._queue.backlog())
            await asyncio.sleep(every_s)


class Waker:
    """Wakes an ingest replica, without anybody waiting for it; one that is not woken looks by itself, only later.

    Args:
        stage: Its handle.
    """

    def __init__(self, stage: RemoteStage[Any, Any]) -> None:
        self._stage = stage
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def __call__(self) -> None:
        """Wake one, now or right after the call that is under way."""
        self._again = True
        if self._task is None:
            self._task = asyncio.create_task(self._wake())

    async def _wake(self) -> None:
        try:
            while self._again:
                self._again = False
                with suppress(StrataError):
                    await self._stage.ask("wake", _WAKE_S)
        finally:
            self._task = None
