"""Places for searches, found out from their latency: over simulated time, in front of a simulated service."""

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import Overloaded
from deployments.limits.admission import Admission
from deployments.limits.config import AdmissionConfig

CONFIG = AdmissionConfig()
TARGET = (CONFIG.target_ms or 0) / 1000
MOST, CORES, WORK_S = 64, 2, 0.05
# Searches a second that the simulated service can answer.
SATURATED = CORES / WORK_S


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def admission(clock: FakeClock, most: int = MOST, **changes: object) -> Admission:
    return Admission(CONFIG.model_copy(update=changes), most, clock=clock)


def rounds(each: Admission, clock: FakeClock, took: float, count: int = 1, *, whole: bool = True) -> None:
    """Take all places, and give them back after so many seconds, again and again."""
    for _ in range(count):
        began = [each.enter() for _ in range(each.places)]
        clock.now += took
        for moment in began:
            each.leave(moment, whole=whole)


def test_searches_within_the_target_are_given_more_places_up_to_the_most(clock: FakeClock) -> None:
    each = admission(clock)
    rounds(each, clock, TARGET / 2, 10)
    assert CONFIG.initial < each.places <= CONFIG.initial + 10 * CONFIG.increase
    rounds(each, clock, TARGET / 2, 300)
    assert each.places == MOST


def test_searches_over_the_target_lose_places_by_how_far_they_are_over_and_once_a_round(clock: FakeClock) -> None:
    each = admission(clock, initial=40)
    rounds(each, clock, TARGET / 0.75)
    assert each.places == 40 * (1 - CONFIG.decrease * 0.25)
    rounds(each, clock, 100 * TARGET)
    assert each.places == 32 * (1 - CONFIG.most_decrease)
    rounds(each, clock, 100 * TARGET, 20)
    assert each.places == CONFIG.least


def test_a_search_that_began_before_the_last_cut_calls_for_no_other(clock: FakeClock) -> None:
    each = admission(clock, initial=40)
    began = [each.enter() for _ in range(40)]
    clock.now = 10 * TARGET
    each.leave(began.pop(), whole=True)
    assert each.places == 20
    for moment in began[:-5]:
        clock.now += TARGET
        each.leave(moment, whole=True)
    assert each.places == 20


@pytest.mark.parametrize("took", [TARGET / 10, TARGET * 10])
def test_while_half_of_the_places_are_free_nothing_is_learnt(clock: FakeClock, took: float) -> None:
    each = admission(clock)
    for _ in range(100):
        began = [each.enter() for _ in range(CONFIG.initial // 2 - 1)]
        clock.now += took
        for moment in began:
            each.leave(moment, whole=True)
    assert each.places == CONFIG.initial


def test_quick_answers_that_lack_something_give_back_the_initial_places_and_no_more(clock: FakeClock) -> None:
    """With an open circuit a search is quick because it does less; that may last, and must not leave next to none."""
    each = admission(clock)
    rounds(each, clock, TARGET / 10, 20, whole=False)
    assert each.places == CONFIG.initial
    rounds(each, clock, TARGET * 10, 1, whole=False)
    assert each.places == CONFIG.initial / 2
    rounds(each, clock, TARGET / 10, 100, whole=False)
    assert each.places == CONFIG.initial


def test_a_refused_search_is_told_when_those_before_it_are_through(clock: FakeClock) -> None:
    """Little's law: four places of a second each are four searches a second; the n-th refused waits behind n others."""
    places = 4
    each = admission(clock, most=places)
    rounds(each, clock, 1.0, 100)
    for _ in range(places):
        each.enter()
    waits = []
    for _ in range(100):
        with pytest.raises(Overloaded) as refusal:
            each.enter()
        waits.append(refusal.value.retry_after)
    assert waits[0] == pytest.approx((places + 1) / places, rel=0.05)
    assert waits[places - 1] == pytest.approx(2, rel=0.05)
    assert waits == sorted(waits)
    assert waits[-1] == CONFIG.max_retry_after_s
    clock.now += CONFIG.max_retry_after_s
    with pytest.raises(Overloaded) as refusal:
        each.enter()
    assert refusal.value.retry_after == pytest.approx(waits[0])


def test_without_a_target_only_the_most_counts(clock: FakeClock) -> None:
    each = admission(clock, most=5, target_ms=None)
    rounds(each, clock, 1000.0, 10)
    assert each.places == 5


def test_each_change_of_the_places_is_told_once(clock: FakeClock) -> None:
    told: list[int] = []
    each = Admission(CONFIG, MOST, told.append, clock)
    rounds(each, clock, TARGET / 2, 10)
    rounds(each, clock, TARGET * 2, 2)
    assert told[:2] == [MOST, CONFIG.initial]
    assert told[-1] == each.places
    assert all(before != after for before, after in pairwise(told))


@given(
    most=st.integers(1, 100),
    least=st.integers(1, 20),
    initial=st.integers(1, 200),
    events=st.lists(st.tuples(st.booleans(), st.floats(0, 2), st.booleans()), max_size=200),
)
def test_whatever_happens_places_stay_between_least_and_most(
    most: int, least: int, initial: int, events: list[tuple[bool, float, bool]]
) -> None:
    clock = FakeClock()
    each = admission(clock, most=most, least=least, initial=initial)
    inside: list[float] = []
    for enters, seconds, whole in events:
        clock.now += seconds
        if enters:
            places = each.places
            try:
                inside.append(each.enter())
                assert len(inside) <= places
            except Overloaded as refusal:
                assert len(inside) >= places
                assert 1 <= refusal.retry_after <= CONFIG.max_retry_after_s
        elif inside:
            each.leave(inside.pop(0), whole=whole)
        assert min(least, most) <= each.places <= most


@dataclass
class FakeService:
    """Shares its cores evenly among all searches inside; each ingress in front has places of its own.

    Time is virtual: of ``n`` searches each gets ``cores / n`` of a core, so that one is done when the virtual time has
    grown by its work.
    """

    clock: FakeClock
    ingresses: Sequence[Admission]
    work: Callable[[], float]
    virtual: float = 0.0
    inside: list[tuple[float, int, float, Admission]] = field(default_factory=list)
    # When they came, how long they took, and which ingress let them in.
    answered: list[tuple[float, float, Admission]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def run(self, arrivals: Iterator[float], until: float) -> None:
        for number, arrival in enumerate(arrivals):
            if arrival > until:
                break
            self._answer(arrival)
            ingress = self.ingresses[number % len(self.ingresses)]
            try:
                heapq.heappush(self.inside, (self.virtual + self.work(), number, ingress.enter(), ingress))
            except Overloaded:
                self.refused.append(arrival)

    def _answer(self, until: float) -> None:
        """Let time pass, and end what is done by then."""
        while self.inside:
            speed = min(1.0, CORES / len(self.inside))
            done = self.clock.now + (self.inside[0][0] - self.virtual) / speed
            if done > until:
                self.virtual += (until - self.clock.now) * speed
                break
            self.virtual, _, began, ingress = heapq.heappop(self.inside)
            self.clock.now = done
            ingress.leave(began, whole=True)
            self.answered.append((began, done - began, ingress))
        self.clock.now = until

    def between(self, start: float, end: float) -> tuple[float, float, float]:
        """P95 in seconds, answers a second, and the share that was refused, of what came in a span."""
        took = [took for began, took, _ in self.answered if start <= began < end]
        refused = sum(start <= each < end for each in self.refused)
        return float(np.quantile(took, 0.95)), len(took) / (end - start), refused / (len(took) + refused)


def coming(rate: Callable[[float], float], seed: int) -> Iterator[float]:
    chance, now = random.Random(seed), 0.0
    while True:
        now += chance.expovariate(rate(now))
        yield now


def works(seed: int, mean: float = WORK_S, spread: float = 0.5) -> Callable[[], float]:
    chance = random.Random(seed)
    return lambda: chance.lognormvariate(math.log(mean) - spread**2 / 2, spread)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_at_twice_the_saturation_the_admitted_are_quick_the_service_busy_and_afterwards_all_is_as_before(
    seed: int,
) -> None:
    """C40's 300 ms are twice the target."""
    clock = FakeClock()
    service = FakeService(clock, [admission(clock)], works(seed))
    service.run(coming(lambda now: SATURATED * (2.0 if 60 <= now < 120 else 0.5), seed), until=180)
    for start, end in ((5, 60), (125, 180)):
        p95, _, refused = service.between(start, end)
        assert p95 < 2 * TARGET
        assert refused < 0.03
    p95, answers, refused = service.between(60, 120)
    assert p95 < 2 * TARGET
    assert answers > 0.9 * SATURATED
    assert 0.4 < refused < 0.6


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), quick=st.floats(0.0005, 0.005))
def test_a_fast_service_refuses_nobody(seed: int, quick: float) -> None:
    clock = FakeClock()
    service = FakeService(clock, [admission(clock)], works(seed, quick))
    service.run(coming(lambda now: 0.5 * CORES / quick, seed), until=30)
    assert len(service.refused) <= 0.01 * len(service.answered)


def test_a_service_that_gets_slower_has_its_places_within_a_few_rounds(clock: FakeClock) -> None:
    """As when a cache is lost: what was let in for quick searches is too much for slow ones."""
    each = admission(clock)
    work = works(1, WORK_S / 5)
    service = FakeService(clock, [each], lambda: work() * (10 if clock.now > 60 else 1))
    service.run(coming(lambda now: 4 * SATURATED, 1), until=120)
    assert service.between(70, 120)[0] < 5 * TARGET
    assert each.places < 2 * CONFIG.least


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_two_ingresses_that_know_nothing_of_one_another_share_what_there_is(seed: int) -> None:
    clock = FakeClock()
    ingresses = [admission(clock, least=1, initial=initial) for initial in (30, 2)]
    service = FakeService(clock, ingresses, works(seed, WORK_S / 4))
    service.run(coming(lambda now: 8 * SATURATED, seed), until=120)
    shares = [sum(each is ingress and began > 20 for began, _, each in service.answered) for ingress in ingresses]
    assert max(shares) < 1.5 * min(shares)
    assert service.between(20, 120)[0] < 2 * TARGET
