"""The load generator: it sends when requests are due, and waiting counts."""

import asyncio
from itertools import repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.load.generator import OK, TIMEOUT, UNSENT, Reply, drive
from evaluation.load.quantiles import quantiles
from evaluation.load.schedule import arrivals

QUERIES = repeat("a query")


class FakeService:
    """Answers at once, but for one stall.

    Args:
        stall: The request that it stalls at, and for how many seconds; all that come meanwhile wait too.
    """

    def __init__(self, stall: tuple[int, float] = (0, 0.0)) -> None:
        self._at, self._seconds = stall
        self._free = asyncio.Lock()
        self.asked = self.most = self._now = 0

    async def ask(self, query: str) -> Reply:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            async with self._free:
                self.asked += 1
                if self.asked == self._at:
                    await asyncio.sleep(self._seconds)
        finally:
            self._now -= 1
        return Reply(OK)


@settings(deadline=None)
@given(rate=st.floats(0.5, 500), seconds=st.floats(0.5, 20), seed=st.integers(0, 9))
def test_arrivals_meet_the_rate_and_rise_within_the_step(rate: float, seconds: float, seed: int) -> None:
    for kind in ("poisson", "constant"):
        due = arrivals(rate, seconds, kind, seed)
        assert len(due) == max(1, round(rate * seconds))
        assert due == sorted(due)
        assert due[0] >= 0
        assert due[-1] <= seconds + 1 / rate


def test_poisson_arrivals_have_the_gaps_of_a_poisson_process() -> None:
    """Exponential gaps: mean and standard deviation are both 1/rate; constant ones do not vary."""
    gaps = np.diff(arrivals(100, 200, "poisson", seed=1))
    assert gaps.mean() == pytest.approx(0.01, rel=0.05)
    assert gaps.std() == pytest.approx(0.01, rel=0.05)
    assert np.diff(arrivals(100, 200, "constant")).std() == pytest.approx(0, abs=1e-9)
    assert arrivals(10, 5, "poisson", seed=1) != arrivals(10, 5, "poisson", seed=2)


@pytest.mark.parametrize("connections", [1, 8, 256])
async def test_a_stall_of_a_second_shows_whatever_the_connections(connections: int) -> None:
    """Coordinated omission: one that waits for its one connection would call 199 of 200 searches quick."""
    service = FakeService(stall=(21, 1.0))
    due = arrivals(100, 2, "constant")
    samples = await drive(service.ask, QUERIES, due, connections=connections, patience=10)
    took = np.sort([sample.took_ms for sample in samples])
    assert len(took) == 200
    # Those due 0.2 s to 1.2 s after the start wait for what is left of the stall: 1000, 990, … ms.
    assert (took > 490).sum() >= 50
    assert took[-1] >= 990
    figures = quantiles(list(took))
    assert figures
    assert figures.p95_ms >= 890
    assert service.most <= connections


async def test_what_waits_for_a_connection_is_late_and_its_lateness_is_told() -> None:
    samples = await drive(FakeService(stall=(1, 0.3)).ask, QUERIES, [0.0, 0.01, 0.02], connections=1, patience=10)
    # Due 10 and 20 ms after the start of a stall of 300.
    assert all(sample.late_ms >= 270 for sample in samples[1:])
    assert all(sample.took_ms >= sample.late_ms for sample in samples)


async def test_a_caller_gives_up_and_what_was_never_sent_is_told_apart() -> None:
    service = FakeService(stall=(1, 60.0))
    samples = await drive(service.ask, QUERIES, [0.0] * 5, connections=1, patience=0.1)
    assert [sample.reply.code for sample in samples] == [TIMEOUT] + [UNSENT] * 4
    assert service.asked == 1
