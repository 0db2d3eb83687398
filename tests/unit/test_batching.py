import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageFailed, StageTimeout
from contracts.records import ModelRef
from contracts.stages import EmbedRequest, QueryVectors
from deployments.batching import BatchedEmbedder, Batcher, SharedScorer

# Made when the test is collected, so it must outlast the whole run.
LATER = Deadline.after(86_400)
CTX = RequestContext("acme")


class Gate:
    """Work that waits to be let through and notes its batches."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        self.batches: list[list[int]] = []
        self.error: Exception | None = None

    async def __call__(self, items: Sequence[int], deadline: Deadline) -> list[int]:
        self.batches.append(list(items))
        self.entered.set()
        await self.open.wait()
        if self.error:
            raise self.error
        return [item * 10 for item in items]


async def busy(gate: Gate, batcher: Batcher[int, int]) -> "asyncio.Task[int]":
    """The batcher at work on a first item."""
    first = asyncio.create_task(batcher.submit(1, LATER))
    await gate.entered.wait()
    return first


async def queued(batcher: Batcher[int, int], *items: int, deadline: Deadline = LATER) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.create_task(batcher.submit(item, deadline)) for item in items]
    await asyncio.sleep(0)
    return tasks


async def test_an_idle_batcher_starts_at_once_and_a_busy_one_gathers() -> None:
    gate = Gate()
    batcher = Batcher(gate, lambda item: 1, limit=8)
    first = await busy(gate, batcher)
    rest = await queued(batcher, 2, 3, 4)
    gate.open.set()
    assert await asyncio.gather(first, *rest) == [10, 20, 30, 40]
    assert gate.batches == [[1], [2, 3, 4]]


async def test_a_batch_ends_at_its_limit_and_a_large_item_goes_alone() -> None:
    gate = Gate()
    batcher = Batcher(gate, lambda item: item, limit=5)
    first = await busy(gate, batcher)
    rest = await queued(batcher, 2, 3, 9, 1)
    gate.open.set()
    await asyncio.gather(first, *rest)
    assert gate.batches == [[1], [2, 3], [9], [1]]


async def test_the_limit_can_be_changed_while_it_works() -> None:
    gate = Gate()
    batcher = Batcher(gate, lambda item: 1, limit=1)
    first = await busy(gate, batcher)
    rest = await queued(batcher, 2, 3)
    batcher.limit = 2
    gate.open.set()
    await asyncio.gather(first, *rest)
    assert gate.batches == [[1], [2, 3]]


async def test_what_nobody_waits_for_is_dropped_before_batching() -> None:
    gate = Gate()
    batcher = Batcher(gate, lambda item: 1, limit=8)
    first = await busy(gate, batcher)
    (cancelled,) = await queued(batcher, 2)
    (expired,) = await queued(batcher, 3, deadline=Deadline.after(-1))
    (kept,) = await queued(batcher, 4)
    cancelled.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    assert await asyncio.gather(first, kept) == [10, 40]
    assert gate.batches == [[1], [4]]
    with pytest.raises(StageTimeout):
        await expired


async def test_a_failed_batch_fails_its_own_items_only() -> None:
    gate = Gate()
    batcher = Batcher(gate, lambda item: 1, limit=8)
    gate.error = StageFailed("Broken.")
    first = await busy(gate, batcher)
    gate.open.set()
    with pytest.raises(StageFailed):
        await first
    gate.error = None
    assert await batcher.submit(2, LATER) == 20
    assert batcher.busy_seconds() == 0


async def test_cancelling_a_caller_in_a_running_batch_leaves_the_others_alone() -> None:
    gate = Gate()
    batcher = Batcher(gate, lambda item: 1, limit=8)
    first = await busy(gate, batcher)
    second, third = await queued(batcher, 2, 3)
    first.cancel()
    gate.open.set()
    assert await asyncio.gather(second, third) == [20, 30]


async def test_requests_embedded_together_get_their_own_rows_and_cuts() -> None:
    model = ModelRef("m", "1", 1)
    calls: list[tuple[str, ...]] = []
    gate = asyncio.Event()

    async def stage(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        calls.append(request.texts)
        await gate.wait()
        lengths = np.array([[len(text)] for text in request.texts], dtype=np.float32)
        return QueryVectors.pack(model, lengths, tuple(i for i, text in enumerate(request.texts) if len(text) > 2))

    embedder = BatchedEmbedder(stage, limit=8)
    requests = [EmbedRequest(texts) for texts in (("a",), ("bb", "ccc"), ("dddd",))]
    tasks = [asyncio.create_task(embedder(CTX, LATER, request)) for request in requests]
    await asyncio.sleep(0)
    passage = asyncio.create_task(embedder(CTX, LATER, EmbedRequest(("p",), "passage")))
    await asyncio.sleep(0)
    gate.set()
    answers = await asyncio.gather(*tasks)
    assert [answer.unpack().ravel().tolist() for answer in answers] == [[1], [2, 3], [4]]
    assert [answer.truncated for answer in answers] == [(), (1,), (0,)]
    assert (await passage).rows == 1
    assert ("p",) in calls
    assert len(calls) < 4


async def test_threads_that_score_at_once_share_batches() -> None:
    batches: list[int] = []

    class FakeScorer:
        def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
            batches.append(len(pairs))
            return np.array([len(query) for query, _ in pairs], dtype=np.float32)

    scorer = SharedScorer(FakeScorer(), limit=100, timeout=60)
    asked = [[("q" * n, "p")] * n for n in range(1, 9)]
    answers = await asyncio.gather(*(asyncio.to_thread(scorer.score, pairs) for pairs in asked))
    assert [answer.tolist() for answer in answers] == [[float(n)] * n for n in range(1, 9)]
    assert sum(batches) == sum(range(1, 9))


async def test_what_waits_for_the_model_is_told() -> None:
    gate, told = Gate(), list[int]()
    batcher = Batcher(gate, lambda item: 1, 8, told.append)
    first = await busy(gate, batcher)
    rest = await queued(batcher, 2, 3)
    assert sum(told) == 2
    gate.open.set()
    await asyncio.gather(first, *rest)
    assert sum(told) == 0
