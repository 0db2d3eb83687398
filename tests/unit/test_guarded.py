"""A stage behind its circuit breaker (design decision 3)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from contracts.breaker import BreakerState
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, Overloaded, RecallFailed, StageDown, StageFailed, StageTimeout
from stages.guarded import BreakerConfig, Guarded
from stages.run import Silent

CTX = RequestContext("acme")
BUDGET = 0.02
CONFIG = BreakerConfig(failures=3, open_ms=60_000)


class FakeStage:
    """A stage that does what the test says, and counts."""

    def __init__(self) -> None:
        self.calls = self.cancelled = 0
        self.act: Callable[[], Awaitable[str]] = self.answer

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: str) -> str:
        self.calls += 1
        return await self.act()

    async def answer(self) -> str:
        return "answer"

    async def hang(self) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("It hangs.")

    def failing(self, error: Exception) -> None:
        async def fail() -> str:
            raise error

        self.act = fail


class Watcher(Silent):
    """An observer that remembers where the circuit stood."""

    def __init__(self) -> None:
        self.states: list[BreakerState] = []

    def circuit(self, name: str, state: BreakerState) -> None:
        self.states.append(state)


def guarded(stage: FakeStage, config: BreakerConfig = CONFIG, observer: Silent | None = None) -> Guarded[str, str]:
    return Guarded("probe", stage, BUDGET, config, observer or Silent(), lambda _, answer: answer == "answer")


async def call(stage: Guarded[str, str], seconds: float = BUDGET) -> str:
    return await stage(CTX, Deadline.after(seconds), "request")


async def fail(stage: Guarded[str, str], times: int, kind: type[Exception], seconds: float = BUDGET) -> None:
    for _ in range(times):
        with pytest.raises(kind):
            await call(stage, seconds)


@pytest.mark.parametrize("error", [RuntimeError("x"), StageFailed("x"), RecallFailed("x"), StageTimeout("x")])
async def test_after_failures_in_a_row_the_stage_is_not_asked(error: Exception) -> None:
    stage, observer = FakeStage(), Watcher()
    stage.failing(error)
    probe = guarded(stage, observer=observer)
    await fail(probe, 3, type(error))
    with pytest.raises(StageDown) as caught:
        await call(probe)
    assert (caught.value.stage, caught.value.code) == ("probe", "RET-5042")
    assert stage.calls == 3
    assert observer.states == ["closed", "open"]


async def test_time_outs_open_it_and_cancel_the_work() -> None:
    stage = FakeStage()
    stage.act = stage.hang
    probe = guarded(stage)
    await fail(probe, 3, StageTimeout)
    await fail(probe, 1, StageDown)
    assert (stage.calls, stage.cancelled) == (3, 3)


async def test_callers_with_little_time_do_not_open_it() -> None:
    """A time-out counts only after a fair share of the budget."""
    stage = FakeStage()
    stage.act = stage.hang
    probe = guarded(stage)
    await fail(probe, 9, StageTimeout, seconds=BUDGET / 4)
    assert stage.calls == 9


async def test_a_hurried_time_out_makes_no_failures_forgotten() -> None:
    stage = FakeStage()
    probe = guarded(stage)
    stage.failing(RuntimeError())
    await fail(probe, 2, RuntimeError)
    stage.act = stage.hang
    await fail(probe, 1, StageTimeout, seconds=BUDGET / 4)
    stage.failing(RuntimeError())
    await fail(probe, 1, RuntimeError)
    await fail(probe, 1, StageDown)


async def test_a_stage_without_room_sheds_and_does_not_open_it() -> None:
    stage = FakeStage()
    stage.failing(Overloaded("No room."))
    await fail(guarded(stage), 9, Overloaded)
    assert stage.calls == 9


async def test_a_callers_mistake_is_an_answer() -> None:
    stage = FakeStage()
    probe = guarded(stage)
    for _ in range(3):
        stage.failing(RuntimeError())
        await fail(probe, 2, RuntimeError)
        stage.failing(InvalidFilter("No such field."))
        await fail(probe, 1, InvalidFilter)
    assert stage.calls == 9


async def test_an_answer_of_the_wrong_shape_is_a_failure() -> None:
    stage = FakeStage()

    async def garbage() -> Any:
        return 7

    stage.act = garbage
    probe = guarded(stage)
    await fail(probe, 3, StageFailed)
    await fail(probe, 1, StageDown)


async def test_after_the_pause_one_call_is_let_through_and_closes_it() -> None:
    stage, observer = FakeStage(), Watcher()
    probe = guarded(stage, BreakerConfig(failures=1, open_ms=1), observer)
    stage.failing(RuntimeError())
    await fail(probe, 1, RuntimeError)
    stage.act = stage.answer
    answer = ""
    while not answer:
        with suppress(StageDown):
            answer = await call(probe)
    assert observer.states[0] == observer.states[-1] == "closed"


async def test_without_time_the_stage_is_not_called() -> None:
    stage = FakeStage()
    await fail(guarded(stage), 9, StageTimeout, seconds=0)
    assert stage.calls == 0
