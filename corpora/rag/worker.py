"""The worker of the durable ingest: claims changes, cuts, embeds and writes them, and notes how each ended (R2).

Killed at any moment, it loses nothing: a change is over only once the index shows it, and doing it again leaves the
same state. The index is open for writing only while there is work, so that other writers get their turn.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from uuid import uuid4

from contracts.errors import DatabaseDown
from contracts.ports import Embedder, WritableIndex
from corpora.rag.batch import Batch, Outcome, reason_of
from corpora.rag.documents import SourceChunker
from corpora.rag.ingest_config import IngestQueueConfig
from corpora.rag.jobs import Jobs
from corpora.rag.store import IndexStore

OpenWriter = Callable[[], AbstractAsyncContextManager[WritableIndex]]

# A worker stops when this share of its lease is over and it could not be renewed.
_SAFE = 0.8
# Seconds that it waits at most when the database or the index can't be had.
_LONGEST_PAUSE = 30.0
# Nodes written after which files are merged even while there is more to do.
_OPTIMIZE = 20_000
# What is due but can't be claimed yet, because another worker has it, is looked for so often in ``poll_s``.
_LOOKS = 10


def silent(outcome: Outcome, /) -> None:
    """Nobody is told."""


class IngestWorker:
    """Works off the queue; any number of them may, one a process where the index has one place to write.

    Args:
        jobs: The queue.
        chunker: Cuts sources.
        embedder: Makes vectors; its model must be that of the index.
        open_writer: Opens the index for writing; the worker enters it when there is work, and leaves it when idle.
        config: Sizes, leases and pauses.
        told: Told how each try of a job ended, for metrics and logs.
    """

    def __init__(
        self,
        jobs: Jobs,
        chunker: SourceChunker,
        embedder: Embedder,
        open_writer: OpenWriter,
        config: IngestQueueConfig,
        told: Callable[[Outcome], None] = silent,
    ) -> None:
        self._jobs = jobs
        self._chunker = chunker
        self._embedder = embedder
        self._open_writer = open_writer
        self._config = config
        self._told = told
        self._owner = uuid4().hex
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._writer: tuple[AsyncExitStack, IndexStore] | None = None
        self._unreleased: list[Batch] = []
        self._nodes = 0
        self._failures = 0
        self._busy_at = self._swept_at = self._resume_at = float("-inf")
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """What keeps it from working now; empty when nothing does."""
        return self._trouble

    def wake(self) -> None:
        """Tell it that there may be work; it looks by itself too, only later."""
        self._woken.set()

    def stop(self) -> None:
        """Let ``run`` end once what is claimed is done."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Work until it is stopped. When it is cancelled instead, it gives back what it holds."""
        try:
            while not self._stopping.is_set():
                if not await self._turn():
                    await self._rest()
        finally:
            await self._let_go()

    async def drain(self) -> None:
        """Work until nothing is due, or something keeps it from working, as ``trouble`` says."""
        try:
            while await self._turn():
                pass
        finally:
            await self._let_go()

    async def _turn(self) -> bool:
        """Do one batch; whether there may be more to do at once."""
        try:
            await self._release(0)
            await self._tidy()
            began = self._now()
            claimed = await self._jobs.claim(self._owner, self._config.batch)
        except DatabaseDown as error:
            self._troubled(reason_of(error))
            return False
        if not claimed:
            return False
        batch = Batch(claimed, self._owner, self._jobs, self._chunker, self._embedder, self._config, self._told)
        try:
            async with self._leased(batch, began):
                await batch.run(await self._store())
        except Exception as error:  # no writer to be had, no database, or no time left of the lease
            batch.trouble = "write", reason_of(error)
        finally:
            self._busy_at = self._now()
            self._nodes += batch.nodes
            if batch.trouble:
                self._troubled(batch.trouble[1])
            if batch.held:
                self._unreleased.append(batch)
                with suppress(DatabaseDown):
                    await asyncio.shield(self._release(self._pause() if batch.trouble else 0))
        if batch.trouble:
            await self._let_go()
            return False
        self._failures, self._trouble = 0, ""
        if self._nodes >= _OPTIMIZE:
            await self._optimize()
        return True

    async def _release(self, pause_s: float) -> None:
        """Give back what is held no longer; what the database does not take now is given back before the next batch."""
        while self._unreleased:
            await self._unreleased[-1].release(pause_s)
            self._unreleased.pop()

    async def _rest(self) -> None:
        """Wait until there may be work; let go of the index when there was none for a while."""
        pause, event = self._resume_at - self._now(), self._stopping
        if pause <= 0:
            pause, event = self._config.poll_s, self._woken
            with suppress(DatabaseDown):
                due = await self._jobs.next_due()
                if due is not None:
                    pause = min(pause, due if due > 0 else pause / _LOOKS)
        if self._writer:
            idle = self._busy_at + self._config.idle_s - self._now()
            if idle <= 0:
                await self._let_go()
            else:
                pause = min(pause, idle)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await event.wait()
        self._woken.clear()

    async def _tidy(self) -> None:
        if self._now() - self._swept_at >= self._config.sweep_s:
            await self._jobs.sweep()
            await self._jobs.prune()
            self._swept_at = self._now()

    @asynccontextmanager
    async def _leased(self, batch: Batch, began: float) -> AsyncIterator[None]:
        """Keep the leases of a batch; a ``TimeoutError`` ends the work before they do."""
        safe, over = self._config.lease_s * _SAFE, asyncio.Event()

        async def renew(limit: asyncio.Timeout) -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._config.lease_s / 3):
                        await over.wait()
                        return
                now = self._now()
                with suppress(DatabaseDown):
                    await batch.renew()
                    if not limit.expired():
                        limit.reschedule(now + safe)

        async with asyncio.timeout_at(began + safe) as limit:
            renewing = asyncio.create_task(renew(limit))
            try:
                yield
            finally:
                over.set()
                await renewing

    async def _store(self) -> IndexStore:
        if self._writer is None:
            async with AsyncExitStack() as stack:
                store = IndexStore(await stack.enter_async_context(self._open_writer()))
                self._writer = stack.pop_all(), store
        return self._writer[1]

    async def _let_go(self) -> None:
        """Close the index, so that others may write; the next work opens it again."""
        if self._writer:
            await self._optimize()
            (stack, _), self._writer = self._writer, None
            # What was written is written, and whatever is wrong with the index shows when it is opened again.
            with suppress(Exception):
                await stack.aclose()

    async def _optimize(self) -> None:
        if self._writer and self._nodes:
            self._nodes = 0
            # A search is only slower without.
            with suppress(Exception):
                await self._writer[1].optimize()

    def _troubled(self, reason: str) -> None:
        self._failures += 1
        self._trouble = reason
        self._resume_at = self._now() + self._pause()

    def _pause(self) -> float:
        """Seconds that it waits after failures that are no source's fault, longer after each."""
        return min(self._config.backoff_s * 2.0 ** max(0, self._failures - 1), _LONGEST_PAUSE)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
