import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.breaker import Breaker, CircuitOpen

PAUSE = 2.0


class Down(Exception):
    """The other side is down."""


class Wrong(Exception):
    """The other side answers that the request is wrong."""


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> Breaker:
    return Breaker(3, PAUSE, lambda error: isinstance(error, Down | TimeoutError), clock)


def call(breaker: Breaker, error: BaseException | None = None) -> None:
    """One call, which raises the error given."""
    with breaker.guard():
        if error:
            raise error


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(Down):
            call(breaker, Down())


def test_it_opens_after_failures_in_a_row_and_then_refuses_at_once(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"
    with pytest.raises(CircuitOpen):
        call(breaker)


def test_an_answer_between_failures_starts_the_count_again(breaker: Breaker) -> None:
    for _ in range(3):
        fail(breaker, 2)
        call(breaker)
    assert breaker.state == "closed"


def test_an_error_that_is_an_answer_counts_as_one(breaker: Breaker) -> None:
    for _ in range(3):
        fail(breaker, 2)
        with pytest.raises(Wrong):
            call(breaker, Wrong())
    assert breaker.state == "closed"


def test_after_the_pause_one_call_goes_through_and_the_others_are_refused(breaker: Breaker, clock: FakeClock) -> None:
    fail(breaker, 3)
    clock.now += PAUSE
    assert breaker.state == "half_open"
    with breaker.guard():
        assert breaker.state == "half_open"
        with pytest.raises(CircuitOpen):
            call(breaker)
    assert breaker.state == "closed"
    call(breaker)


def test_a_failed_probe_opens_it_for_another_pause(breaker: Breaker, clock: FakeClock) -> None:
    fail(breaker, 3)
    clock.now += PAUSE
    fail(breaker)
    assert breaker.state == "open"
    clock.now += PAUSE
    call(breaker)
    assert breaker.state == "closed"


def test_after_it_closed_it_takes_as_many_failures_as_before(breaker: Breaker, clock: FakeClock) -> None:
    fail(breaker, 3)
    clock.now += PAUSE
    call(breaker)
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_a_cancelled_probe_leaves_the_next_call_to_see(breaker: Breaker, clock: FakeClock) -> None:
    fail(breaker, 3)
    clock.now += PAUSE
    with pytest.raises(asyncio.CancelledError):
        call(breaker, asyncio.CancelledError())
    assert breaker.state == "half_open"
    call(breaker)
    assert breaker.state == "closed"


def test_a_cancelled_call_counts_neither_way(breaker: Breaker) -> None:
    fail(breaker, 2)
    with pytest.raises(asyncio.CancelledError):
        call(breaker, asyncio.CancelledError())
    fail(breaker)
    assert breaker.state == "open"


async def test_a_call_stopped_by_its_deadline_counts_as_a_failure(breaker: Breaker) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError), breaker.guard():
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
    assert breaker.state == "open"


@pytest.mark.parametrize("late", [None, Down()])
def test_what_began_before_it_opened_changes_nothing(
    breaker: Breaker, clock: FakeClock, late: BaseException | None
) -> None:
    slow = breaker.guard()
    slow.__enter__()
    fail(breaker, 3)
    clock.now += PAUSE / 2
    slow.__exit__(type(late) if late else None, late, None)
    assert breaker.state == "open"
    clock.now += PAUSE / 2
    assert breaker.state == "half_open"


@given(st.lists(st.sampled_from(["answer", "fail", "wait"]), max_size=40), st.integers(1, 4))
def test_a_call_is_refused_only_within_a_pause_after_enough_failures_in_a_row(steps: list[str], limit: int) -> None:
    clock = FakeClock()
    breaker = Breaker(limit, PAUSE, lambda error: isinstance(error, Down), clock)
    row, last = 0, 0.0
    for step in steps:
        if step == "wait":
            clock.now += PAUSE
            continue
        try:
            call(breaker, Down() if step == "fail" else None)
        except CircuitOpen:
            assert row >= limit
            assert clock.now < last + PAUSE
            continue
        except Down:
            row, last = row + 1, clock.now
        else:
            row = 0
        clock.now += 0.5


def test_an_error_that_tells_nothing_is_as_if_the_call_had_not_been(clock: FakeClock) -> None:
    breaker = Breaker(3, PAUSE, lambda error: True if isinstance(error, Down) else None, clock)
    fail(breaker, 2)
    with pytest.raises(Wrong):
        call(breaker, Wrong())
    fail(breaker)
    clock.now += PAUSE
    with pytest.raises(Wrong):
        call(breaker, Wrong())
    assert breaker.state == "half_open"
