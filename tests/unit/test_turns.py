"""Turns: how many searches are worked on at once, and who is next."""

import asyncio
from dataclasses import replace

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded
from contracts.requests import SearchMemoryRequest
from contracts.stages import EmbedRequest, QueryVectors
from stages.chain import Chain, ChainConfig
from stages.turns import Turns
from tests.support.chain import CTX, RECORDS, fake_embedder, stages
from tests.support.fake_index import FakeIndex
from tests.support.waiting import until


class FakeWork:
    """Searches that go on until they are let go."""

    def __init__(self, turns: Turns) -> None:
        self.begun: list[str] = []
        self._turns = turns
        self._let: dict[str, asyncio.Event] = {}

    def begin(self, name: str, seconds: float = 60) -> asyncio.Task[None]:
        self._let[name] = asyncio.Event()
        return asyncio.create_task(self._work(name, Deadline.after(seconds)))

    def let(self, name: str) -> None:
        self._let[name].set()

    async def _work(self, name: str, deadline: Deadline) -> None:
        async with self._turns.one(deadline):
            self.begun.append(name)
            await self._let[name].wait()


async def settle() -> None:
    """Let everybody go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_are_worked_on_at_once_and_the_others_in_the_order_they_came() -> None:
    work = FakeWork(Turns(2))
    tasks = [work.begin(name) for name in "abcde"]
    await settle()
    assert work.begun == ["a", "b"]
    for name, begun in (("b", "abc"), ("a", "abcd"), ("c", "abcde")):
        work.let(name)
        await settle()
        assert work.begun == list(begun)
    work.let("d")
    work.let("e")
    await asyncio.gather(*tasks)


async def test_without_a_number_nobody_waits() -> None:
    work = FakeWork(Turns(None))
    tasks = [work.begin(str(number)) for number in range(100)]
    await settle()
    assert len(work.begun) == 100
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("seconds", [0.01, 0, -1], ids=["runs out", "none left", "past"])
async def test_one_whose_time_is_over_before_its_turn_is_refused_and_takes_no_turn(seconds: float) -> None:
    work = FakeWork(Turns(1))
    first, late, last = work.begin("first"), work.begin("late", seconds), work.begin("last")
    with pytest.raises(Overloaded) as caught:
        await late
    assert caught.value.retry_after > 0
    assert work.begun == ["first"]
    work.let("first")
    await until(lambda: work.begun == ["first", "last"])
    work.let("last")
    await asyncio.gather(first, last)


async def test_one_that_gives_up_waiting_or_working_leaves_its_turn_to_the_next() -> None:
    work = FakeWork(Turns(1))
    working, waiting, last = work.begin("working"), work.begin("waiting"), work.begin("last")
    await settle()
    waiting.cancel()
    working.cancel()
    await asyncio.wait([working, waiting])
    await until(lambda: work.begun == ["working", "last"])
    work.let("last")
    await last


async def test_a_chain_works_on_so_many_searches_at_once() -> None:
    working, let = [], asyncio.Event()

    async def embedder(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        working.append(ctx.request_id)
        await let.wait()
        return await fake_embedder(ctx, deadline, request)

    parts = replace(stages(FakeIndex(RECORDS)), embedder=embedder)
    chain = Chain(parts, ChainConfig(), at_once=2)
    searches = [asyncio.create_task(chain.search(CTX, SearchMemoryRequest(query="deploy"))) for _ in range(5)]
    await until(lambda: len(working) == 2)
    await settle()
    assert len(working) == 2
    let.set()
    assert all(answer.hits for answer in await asyncio.gather(*searches))
    assert len(working) == 5


async def test_the_wait_for_a_turn_is_part_of_a_searchs_time() -> None:
    async def embedder(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        await asyncio.Event().wait()
        raise AssertionError

    parts = replace(stages(FakeIndex(RECORDS)), embedder=embedder)
    chain = Chain(parts, ChainConfig(), at_once=1)
    first = asyncio.create_task(chain.search(CTX, SearchMemoryRequest(query="deploy")))
    await settle()
    with pytest.raises(Overloaded):
        await chain.search(CTX, SearchMemoryRequest(query="deploy", timeout_ms=20))
    first.cancel()
