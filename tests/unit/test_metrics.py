"""How our metrics meet Ray's."""

import gc
import weakref

import pytest

from deployments import metrics
from deployments.metrics import InFlight, Reading, Tally
from tests.support.waiting import until


class FakeGauge:
    """Remembers what was set."""

    def __init__(self, *_: object, **__: object) -> None:
        self.set_to: list[tuple[float, dict[str, str]]] = []

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.set_to.append((value, tags))


@pytest.fixture
def gauge(monkeypatch: pytest.MonkeyPatch) -> FakeGauge:
    fake = FakeGauge()
    monkeypatch.setattr(metrics, "Gauge", lambda *_, **__: fake)
    monkeypatch.setattr(metrics, "_REPEAT_S", 0.001)
    return fake


async def test_a_gauge_is_reported_anew_while_it_does_not_change(gauge: FakeGauge) -> None:
    """Ray forgets a gauge once it has reported it."""
    reading = Reading("stage_circuit", "A breaker.", "stage")
    reading.show(2, "planner")
    reading.show(0, "reader")
    shown = {(2, "planner"), (0, "reader")}
    await until(lambda: len(gauge.set_to) > 5)
    assert {(value, tags["stage"]) for value, tags in gauge.set_to[-2:]} == shown
    reading.show(1, "planner")
    await until(lambda: gauge.set_to[-2:] == [(1, {"stage": "planner"}), (0, {"stage": "reader"})])


async def test_a_gauge_that_nobody_holds_is_reported_no_more(gauge: FakeGauge) -> None:
    reading = Reading("stage_circuit", "A breaker.", "stage")
    reading.show(2, "planner")
    gone = weakref.ref(reading)
    del reading
    gc.collect()
    assert gone() is None


def test_what_is_under_way_is_counted(gauge: FakeGauge) -> None:
    under_way = InFlight("stage_in_flight", "Calls.", {"stage": "reader"})
    with pytest.raises(KeyError), under_way.one(), under_way.one():
        raise KeyError
    assert [value for value, _ in gauge.set_to] == [0, 1, 2, 1, 0]


def test_a_tag_that_is_forgotten_is_an_error_here() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Tally("fallback_count", "Fallbacks.", "stage", "code").add(1, "planner")
