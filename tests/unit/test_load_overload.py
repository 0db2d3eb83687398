"""Figures and verdict of overload and of long load, from samples made by hand and from services that are none."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO

import pytest
from rich.console import Console

from deployments.cli import bench_overload_show as show
from evaluation.load import soak as long
from evaluation.load.config import SEARCH, LoadConfig, OverloadConfig
from evaluation.load.generator import OK, TIMEOUT, Reply, Sample
from evaluation.load.overload import Overload, find_saturation, judged, most_answers, overload
from evaluation.load.phases import Load, back_after, medians, moments, phase, phases
from evaluation.load.queries import BUILT_IN
from evaluation.load.run import Plan
from evaluation.load.soak import ALL, by_process, grown, soak

LIMITS = LoadConfig()
WANTED = LIMITS.overload
LOADS = (Load("half", 10, 20), Load("twice", 40, 20), Load("half again", 10, 20))
MB = {"planner": 100.0}


def sample(due: float, ms: float, code: str = OK, retry_after: float | None = None) -> Sample:
    return Sample(0.1, ms, due + ms / 1000, Reply(code, retry_after=retry_after))


def steady(load: Load, start: float, ms: float = 50, count: int | None = None) -> Iterator[Sample]:
    """So many of its searches, evenly apart, are answered."""
    count = round(load.rate * load.seconds) if count is None else count
    return (sample(start + number * load.seconds / count, ms) for number in range(count))


def refused(
    start: float, count: int, ms: float = 4, retry_after: float | None = 2, code: str = "429 RET-4291"
) -> list[Sample]:
    return [sample(start + number * 20 / count, ms, code, retry_after) for number in range(count)]


def burst(*others: Sample, answered: int = 400, ms: float = 120) -> list[Sample]:
    return [*steady(LOADS[1], 20, ms, answered), *others]


def report(twice: Sequence[Sample], again: Sequence[Sample] | None = None) -> Overload:
    last = steady(LOADS[2], 40) if again is None else again
    return judged("a fake", 20, (), LOADS, [*steady(LOADS[0], 0), *twice, *last], MB, MB, LIMITS)


def missed(found: Overload) -> list[str]:
    return [check.what for check in found.checks if not check.kept]


def test_a_service_that_refuses_what_is_too_much_and_answers_the_rest_holds() -> None:
    found = report(burst(*refused(20, 400)))
    assert missed(found) == []
    assert not found.missed
    half, twice, again = found.phases
    assert (half.arrivals, twice.arrivals, again.arrivals) == (200, 800, 200)
    assert (twice.answered, twice.answers_per_s, twice.refused) == (400, 20, {"429 RET-4291": 400})
    assert twice.admitted
    assert twice.refusal
    assert (twice.admitted.p95_ms, twice.refusal.p95_ms, twice.retry_after) == (120, 4, (2, 2))
    assert found.back_after == 0


@pytest.mark.parametrize(
    ("twice", "what"),
    [
        (burst(*refused(20, 400), ms=LIMITS.p95_ms[SEARCH] + 1), "P95 of the admitted, twice, ms"),
        (burst(*refused(20, 500), answered=300), "answers a second, twice"),
        (burst(*refused(20, 400, ms=WANTED.refused_p95_ms + 1)), "P95 of a refusal, twice, ms"),
        (burst(*refused(20, 399), *refused(21, 1, retry_after=None)), "refusals without Retry-After"),
        (burst(*refused(20, 390), *refused(20, 10, code="500 RET-5000")), "share neither answered nor refused, twice"),
    ],
)
def test_each_way_to_fail_under_overload_is_told(twice: list[Sample], what: str) -> None:
    assert missed(report(twice)) == [what]


def test_a_caller_that_gave_up_is_lost_and_its_wait_counts() -> None:
    gave_up = [sample(20 + number, 10_000, TIMEOUT) for number in range(20)]
    found = report(burst(*refused(20, 200), *gave_up, answered=320))
    assert missed(found) == ["P95 of the admitted, twice, ms", "share neither answered nor refused, twice"]
    assert found.phases[1].lost == {TIMEOUT: 20}


def test_a_service_that_answers_nothing_under_overload_does_not_hold() -> None:
    found = report(refused(20, 800))
    assert missed(found) == ["P95 of the admitted, twice, ms", "answers a second, twice"]


def test_a_queue_that_drains_slowly_is_late_and_one_that_drains_soon_is_not() -> None:
    """Each search waits until the queue has drained, so many seconds after the burst."""

    def draining(seconds: float) -> list[Sample]:
        return [sample(each.due_s, 50 + 1000 * max(0, seconds + 40 - each.due_s)) for each in steady(LOADS[2], 40)]

    late, soon = (report(burst(*refused(20, 400)), draining(seconds)) for seconds in (15, 5))
    assert missed(late) == ["seconds until the median is back"]
    assert (late.back_after, soon.back_after) == (15, 5)
    assert missed(soon) == []
    never = report(burst(*refused(20, 400)), draining(60))
    assert never.back_after is None
    assert missed(never) == ["seconds until the median is back"]


def test_what_is_refused_after_the_burst_is_not_back() -> None:
    still = [*refused(40, 400), *steady(LOADS[2], 40)]
    found = report(burst(*refused(20, 400)), still)
    assert found.back_after is None
    assert all(each is None for each in found.seconds_after)


def test_seconds_have_the_lower_median_and_an_empty_one_interrupts_nothing() -> None:
    some = [sample(40.0, 10), sample(40.5, 20), sample(41.1, 30), sample(41.2, 0, "429 x"), sample(43.9, 40)]
    assert medians(some, 40, 4.5) == [10, 30, None, 40]
    assert medians([sample(40, 0, "429 x")], 40, 1) == [math.inf]
    assert back_after([90, None, 50, 50, None, 50, 90], 60) == 2
    assert back_after([50, 50, 90, 50, 50], 60) is None
    assert back_after([], 60) is None


@pytest.mark.parametrize("kind", ["poisson", "constant"])
def test_phases_follow_without_a_gap_and_each_search_belongs_to_the_one_it_was_due_in(kind: str) -> None:
    due = moments(LOADS, kind, seed=3)  # type: ignore[arg-type]
    assert due == sorted(due)
    samples = [sample(moment, 30_000) for moment in due]
    split = phases(LOADS, samples)
    assert [len(part) for part in split] == [200, 800, 200]
    assert [phase(load, part).arrivals for load, part in zip(LOADS, split, strict=True)] == [200, 800, 200]


class FakeService:
    """Answers so many searches at a time, each after a while, and refuses the rest at once."""

    def __init__(self, places: int, seconds: float) -> None:
        self._free = places
        self._seconds = seconds

    async def ask(self, query: str) -> Reply:
        if not self._free:
            return Reply("429 RET-4291", retry_after=1)
        self._free -= 1
        await asyncio.sleep(self._seconds)
        self._free += 1
        return Reply(OK)


def plan(seconds: float, rate: float = 50) -> Plan:
    return Plan(rates=(rate,), seconds=seconds, warm_up=0, queries=BUILT_IN, arrivals="constant", patience=5)


async def test_the_saturation_is_what_is_answered_once_more_brings_no_more() -> None:
    """Four at a time, 20 ms each: about 200 a second, less what timers take."""
    steps = await find_saturation(plan(0.4), FakeService(4, 0.02).ask, LIMITS, lambda said: None)
    assert [each.saturated for each in steps[-2:]] == [True, True]
    assert steps[-1].rate == steps[-2].rate == 50 * 2 ** sum(not each.saturated for each in steps)
    assert most_answers(steps) == max(each.whole for each in steps)


async def test_one_stall_of_the_machine_is_no_saturation() -> None:
    service, stalls = FakeService(4, 0.02), iter([True])

    async def ask(query: str) -> Reply:
        return Reply("429 RET-4291") if next(stalls, False) else await service.ask(query)

    steps = await find_saturation(plan(0.1), ask, LIMITS, lambda said: None)
    assert [each.rate for each in steps[:3]] == [50, 50, 100]
    assert most_answers(steps) > 50


async def test_a_run_goes_through_its_phases_and_counts_what_was_refused() -> None:
    said: list[str] = []
    found = await overload("a fake", plan(1), FakeService(2, 0.02).ask, lambda: MB, LIMITS, said.append, at=100)
    assert [each.rate for each in found.phases] == [50, 200, 50]
    assert sum(found.phases[1].refused.values()) > 0
    assert found.phases[1].without_retry_after == 0
    assert (found.found, found.memory_before, found.memory_after) == ((), MB, MB)
    assert said == ["50 searches a second, then 200, then 50 again: 3 s"]


def series(
    shape: Callable[[float], float], points: int = 101
) -> tuple[list[float], Mapping[str, Sequence[float | None]]]:
    seen = [36.0 * number for number in range(points)]
    return seen, {"planner": [shape(moment / 3600) for moment in seen]}


@pytest.mark.parametrize(
    ("shape", "slope", "growth", "flat"),
    [
        (lambda hours: 200.0, 0, 0, True),
        (lambda hours: 200 + 100 * min(hours, 0.2), 0, 0, True),  # caches fill, and are full
        (lambda hours: 200 + 9 * hours, 9, 0.0357, True),
        (lambda hours: 200 + 20 * hours, 20, 0.0784, False),
        (lambda hours: 200 - 50 * hours, -50, -0.2105, True),
        (lambda hours: 20 + 4 * hours, 4, 0.1538, True),  # within the slack of small ones
    ],
)
def test_growth_is_that_of_the_line_through_what_was_seen_once_it_had_settled(
    shape: Callable[[float], float], slope: float, growth: float, flat: bool
) -> None:
    (found,) = grown(*series(shape), WANTED)
    assert found.slope_mb_per_h == pytest.approx(slope, abs=0.01)
    assert found.growth == pytest.approx(growth, abs=0.0002)
    assert found.flat is flat


def test_processes_that_came_or_went_are_in_the_sum_only() -> None:
    looks = [{"planner": 100.0, "old": 50.0}] * 6 + [{"planner": 100.0, "new": 50.0}] * 6
    made = by_process(looks)
    assert made[ALL] == (150.0,) * 12
    assert made["old"][5:7] == (50.0, None)
    assert [each.name for each in grown(list(map(float, range(12))), made, WANTED)] == [ALL, "planner"]
    assert by_process([{}, {}]) == {}


def test_two_looks_make_no_line() -> None:
    assert list(grown([0.0, 10.0], {"planner": [1.0, 2.0]}, OverloadConfig(settle=0))) == []


async def test_a_soak_looks_at_memory_all_along_and_a_leak_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "_LEAST_S", 0.01)
    monkeypatch.setattr(long, "_LOOKS", 100)
    looks = 0

    def leaking() -> Mapping[str, float]:
        nonlocal looks
        looks += 1
        return {"planner": 100.0 + 10 * looks, "reader": 100.0}

    service = FakeService(50, 0.001)
    found = await soak("a fake", plan(1, rate=100), service.ask, leaking, LIMITS, lambda said: None)
    assert [each.name for each in found.quarters] == [f"quarter {number}" for number in range(1, 5)]
    assert sum(each.answered for each in found.quarters) == 100
    assert len(found.seen_s) == len(found.memory_mb["planner"]) == len(found.memory_mb[ALL])
    assert {each.name: each.flat for each in found.growth} == {ALL: False, "planner": False, "reader": True}
    assert [check.what for check in found.checks if not check.kept] == ["growth of memory", "processes that grow"]
    assert found.missed
    shown = printed(show.soak(found))
    assert "planner" in shown
    assert "✗ processes that grow: 2 (limit 0)" in shown


async def test_a_soak_that_sees_no_memory_does_not_hold() -> None:
    found = await soak("a fake", plan(0.2), FakeService(50, 0).ask, dict, LIMITS, lambda said: None)
    assert {check.what: check.value for check in found.checks if not check.kept} == {
        "growth of memory": None,
        "processes that grow": None,
    }
    assert "unknown" in printed(show.soak(found))


def printed(shown: object) -> str:
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_terminal_shows_phases_recovery_and_verdict() -> None:
    shown = printed(show.overload(report(burst(*refused(20, 400, ms=500)))))
    assert "a fake: saturated at 20 searches a second (told)" in shown
    assert "twice refused: 400 429 RET-4291" in shown
    assert "✗ P95 of a refusal, twice, ms: 500 (limit 100)" in shown
    assert "✓ seconds until the median is back: 0 (limit 10)" in shown
    assert "Memory of the service: 100 MB before, 100 MB after." in shown
