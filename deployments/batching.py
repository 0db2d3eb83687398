"""Dynamic batching without waiting: what arrives while the model is busy makes the next batch.

``@serve.batch`` forms its batches before the model is free: with no wait each arrival becomes a batch of its own that
queues for the model, and with a wait an idle service pays it on every request. Here an idle model starts at once, and
a busy one takes all that has gathered, up to a cost.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageTimeout
from contracts.ports import PairScorer, TextRole
from contracts.stages import EmbedRequest, QueryVectors, Stage

# A batch that takes longer than this hangs: the replica is to be replaced.
HANGING_S = 60.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Waiting(NamedTuple, Generic[Item, Result]):
    item: Item
    cost: int
    deadline: Deadline
    answer: "asyncio.Future[Result]"

    def abandoned(self) -> bool:
        return self.answer.done() or self.deadline.expired()


class Batcher(Generic[Item, Result]):
    """Runs items in batches, one batch at a time, in order of arrival.

    Args:
        run: Takes the items of a batch and the latest of their deadlines, returns one result an item, in order.
        cost: What an item adds to a batch, for instance its number of texts.
        limit: Cost at which a batch is full, at least 1; a single item may exceed it. May be changed at any time.
        queued: Told by how many items the queue has grown or shrunk.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item], Deadline], Awaitable[Sequence[Result]]],
        cost: Callable[[Item], int],
        limit: int,
        queued: Callable[[int], None] = lambda change: None,
    ) -> None:
        self.limit = limit
        self._run = run
        self._cost = cost
        self._queued = queued
        self._queue: deque[_Waiting[Item, Result]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._began = 0.0

    def busy_seconds(self) -> float:
        """How long the batch in progress has taken so far; 0 when there is none."""
        return time.monotonic() - self._began if self._began else 0.0

    async def submit(self, item: Item, deadline: Deadline) -> Result:
        """The result of ``item``, whichever batch it went in.

        Raises:
            StageTimeout: The deadline passed while it queued; it was dropped unprocessed.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(item, self._cost(item), deadline, answer))
        self._queued(1)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while batch := self._take():
            self._began = time.monotonic()
            try:
                latest = max((waiting.deadline for waiting in batch), key=lambda deadline: deadline.at)
                results = await self._run([waiting.item for waiting in batch], latest)
                for waiting, result in zip(batch, results, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(result)
            except Exception as error:
                for waiting in batch:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
            finally:
                self._began = 0.0

    def _take(self) -> list[_Waiting[Item, Result]]:
        """The next batch; those nobody waits for any more are dropped before it is made."""
        batch: list[_Waiting[Item, Result]] = []
        cost = 0
        while self._queue:
            waiting = self._queue[0]
            if waiting.abandoned():
                self._next()
                if not waiting.answer.done():
                    waiting.answer.set_exception(StageTimeout("The deadline passed while the work queued."))
                continue
            if batch and cost + waiting.cost > self.limit:
                break
            batch.append(self._next())
            cost += waiting.cost
        return batch

    def _next(self) -> _Waiting[Item, Result]:
        self._queued(-1)
        return self._queue.popleft()


class BatchedEmbedder:
    """The embedder stage for many requests at once; a stage itself.

    Args:
        stage: Embeds the texts of a whole batch.
        limit: Texts a batch.
        queued: See :class:`Batcher`.
    """

    def __init__(
        self,
        stage: Stage[EmbedRequest, QueryVectors],
        limit: int,
        queued: Callable[[int], None] = lambda change: None,
    ) -> None:
        self._stage = stage
        roles: tuple[TextRole, ...] = ("query", "passage")
        self._batchers = {
            role: Batcher(self._embed, lambda request: len(request.texts), limit, queued) for role in roles
        }

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        """Embed the texts of one request."""
        return await self._batchers[request.role].submit(request, deadline)

    def set_limit(self, limit: int) -> None:
        """Change the texts a batch."""
        for batcher in self._batchers.values():
            batcher.limit = limit

    def busy_seconds(self) -> float:
        """How long the model has worked on its batch."""
        return max(batcher.busy_seconds() for batcher in self._batchers.values())

    async def _embed(self, requests: Sequence[EmbedRequest], deadline: Deadline) -> list[QueryVectors]:
        texts = tuple(text for request in requests for text in request.texts)
        # A batch belongs to no single caller.
        answer = await self._stage(RequestContext(""), deadline, EmbedRequest(texts, requests[0].role))
        vectors, start, parts = answer.unpack(), 0, []
        for request in requests:
            end = start + len(request.texts)
            cut = tuple(i - start for i in answer.truncated if start <= i < end)
            parts.append(QueryVectors.pack(answer.model, vectors[start:end], cut))
            start = end
        return parts


class SharedScorer:
    """A ``PairScorer`` that several threads call at once and that scores their pairs together.

    Args:
        scorer: The model.
        limit: Pairs a batch.
        timeout: Seconds after which pairs still queued are dropped, their caller long gone.
        queued: See :class:`Batcher`.
    """

    def __init__(
        self, scorer: PairScorer, limit: int, timeout: float, queued: Callable[[int], None] = lambda change: None
    ) -> None:
        self._scorer = scorer
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        # A thread of its own: callers block theirs, which may be all of the loop's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scorer")
        self.batcher: Batcher[Sequence[tuple[str, str]], NDArray[np.float32]] = Batcher(self._score, len, limit, queued)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """See ``contracts.ports.PairScorer``. Blocking: call it from a thread, never from the event loop."""
        batched = self.batcher.submit(pairs, Deadline.after(self._timeout))
        return asyncio.run_coroutine_threadsafe(batched, self._loop).result()

    async def _score(
        self, batches: Sequence[Sequence[tuple[str, str]]], deadline: Deadline
    ) -> list[NDArray[np.float32]]:
        pairs = [pair for batch in batches for pair in batch]
        scores = await self._loop.run_in_executor(self._thread, self._scorer.score, pairs)
        ends = np.cumsum([len(batch) for batch in batches])
        return np.split(scores, ends[:-1])


def check_batch(seconds: float) -> None:
    """Raise when a batch has taken so long that it hangs; for ``check_health``."""
    if seconds > HANGING_S:
        raise RuntimeError(f"A batch has taken {seconds:.0f} s.")
