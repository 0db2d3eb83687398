"""More load than a service can answer: half of it, twice of it, half again, without a gap between.

Good is a service that refuses what is too much at once and says when to come again, answers the rest as quickly as
ever and as many as it can, and is as before soon after.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from evaluation.load.config import SEARCH, LoadConfig
from evaluation.load.generator import Ask, Sample, drive
from evaluation.load.phases import (
    Check,
    Load,
    Memory,
    Phase,
    at_least,
    at_most,
    back_after,
    medians,
    moments,
    phase,
    phases,
)
from evaluation.load.queries import mixed
from evaluation.load.report import Inside, Step, saturation, step
from evaluation.load.run import Plan

# Of the saturation.
HALF, TWICE = 0.5, 2.0
_MORE = 2.0
_MOST_STEPS = 12


class Overload(msgspec.Struct, frozen=True):
    """What a service does under overload.

    Args:
        target: What was asked: a URL.
        saturation: Searches a second that it answers at most, found or told.
        found: The steps that found it; empty when it was told.
        phases: Half of it, twice of it, half again.
        seconds_after: Median of each second after the burst, milliseconds; ``None`` where none was due or answered.
        back_after: Seconds after the burst until the median was back; ``None`` when it was never.
        memory_before: Of each process, MB; empty where the service runs elsewhere.
        memory_after: The same afterwards.
        checks: The verdict.
    """

    target: str
    saturation: float
    found: tuple[Step, ...]
    phases: tuple[Phase, ...]
    seconds_after: tuple[float | None, ...]
    back_after: float | None
    memory_before: Mapping[str, float]
    memory_after: Mapping[str, float]
    checks: tuple[Check, ...]

    @property
    def missed(self) -> bool:
        """Whether a check failed."""
        return not all(check.kept for check in self.checks)


async def find_saturation(plan: Plan, ask: Ask, limits: LoadConfig, told: Callable[[str], None]) -> tuple[Step, ...]:
    """Double the rate, from the plan's lowest on, until the service does not keep up twice in a row.

    Once may be an accident of the machine. The last steps are over what it bears; the most whole answers a second of
    any step are its saturation.

    Args:
        plan: What is asked; ``seconds`` is the length of a step.
        ask: Sends a query.
        limits: Say what keeping up is.
        told: What is being done.
    """
    queries, rate, steps = mixed(plan.queries, plan.seed), min(plan.rates), list[Step]()
    while len(steps) < _MOST_STEPS:
        told(f"Looking for the saturation: {rate:g} searches a second")
        samples = await _drive(ask, queries, moments([Load("", rate, plan.seconds)], plan.arrivals, plan.seed), plan)
        steps.append(step(rate, plan.seconds, samples, Inside(), None, limits))
        if not steps[-1].saturated:
            rate *= _MORE
        elif all(each.saturated for each in steps[-2:]) and len(steps) > 1:
            break
    return tuple(steps)


def most_answers(steps: Sequence[Step]) -> float:
    """Whole answers a second at saturation; the highest rate tried, when it was never reached."""
    return saturation(steps).capacity or steps[-1].rate


async def overload(
    target: str,
    plan: Plan,
    ask: Ask,
    memory: Memory,
    limits: LoadConfig,
    told: Callable[[str], None],
    *,
    at: float | None = None,
    search_s: float = 10.0,
) -> Overload:
    """Put half of its saturation on a service, then twice of it, then half again.

    Args:
        target: What is asked, for the report.
        plan: ``seconds`` is the length of each phase, ``rates`` where the saturation is looked for from.
        ask: Sends a query.
        memory: Looks at the service's processes.
        limits: What is held against the figures.
        told: What is being done.
        at: The saturation, searches a second; ``None`` looks for it.
        search_s: Seconds of each step while it is looked for.
    """
    found = () if at else await find_saturation(msgspec.structs.replace(plan, seconds=search_s), ask, limits, told)
    saturated = at or most_answers(found)
    half, twice = HALF * saturated, TWICE * saturated
    loads = [Load(name, rate, plan.seconds) for name, rate in (("half", half), ("twice", twice), ("half again", half))]
    queries = mixed(plan.queries, plan.seed + 1)
    if plan.warm_up:
        told("Warming up")
        await _drive(ask, queries, moments([Load("", half, plan.warm_up)], plan.arrivals, plan.seed), plan)
    before = memory()
    told(f"{half:g} searches a second, then {twice:g}, then {half:g} again: {3 * plan.seconds:g} s")
    samples = await _drive(ask, queries, moments(loads, plan.arrivals, plan.seed), plan)
    return judged(target, saturated, found, loads, samples, before, memory(), limits)


def judged(
    target: str,
    saturated: float,
    found: tuple[Step, ...],
    loads: Sequence[Load],
    samples: Sequence[Sample],
    before: Mapping[str, float],
    after: Mapping[str, float],
    limits: LoadConfig,
) -> Overload:
    """The report; arguments as the fields of :class:`Overload`, and ``samples`` of all three phases."""
    split = phases(loads, samples)
    quiet, burst, again = (phase(load, part) for load, part in zip(loads, split, strict=True))
    burst_ended = loads[0].seconds + loads[1].seconds
    windows = medians(split[2], burst_ended, loads[2].seconds)
    back = None
    if quiet.admitted:
        back = back_after(windows, quiet.admitted.p50_ms * limits.overload.back_within)
    return Overload(
        target=target,
        saturation=round(saturated, 2),
        found=found,
        phases=(quiet, burst, again),
        seconds_after=tuple(None if each is None or each == float("inf") else round(each, 1) for each in windows),
        back_after=back,
        memory_before=before,
        memory_after=after,
        checks=tuple(_checks(quiet, burst, back, saturated, limits)),
    )


def _checks(quiet: Phase, burst: Phase, back: float | None, saturated: float, limits: LoadConfig) -> Iterator[Check]:
    wanted = limits.overload
    if (budget := limits.p95_ms.get(SEARCH)) is not None:
        for each in (quiet, burst):
            p95 = each.admitted.p95_ms if each.admitted else None
            yield at_most(f"P95 of the admitted, {each.name}, ms", p95, budget)
    yield at_least("answers a second, twice", burst.answers_per_s, round(wanted.min_answers * saturated, 2))
    if burst.refusal:
        yield at_most("P95 of a refusal, twice, ms", burst.refusal.p95_ms, wanted.refused_p95_ms)
    yield at_most("refusals without Retry-After", quiet.without_retry_after + burst.without_retry_after, 0)
    for each in (quiet, burst):
        lost = sum(each.lost.values()) / max(1, each.arrivals)
        yield at_most(f"share neither answered nor refused, {each.name}", round(lost, 4), limits.max_failed)
    yield at_most("seconds until the median is back", back, wanted.back_s)


async def _drive(ask: Ask, queries: Iterator[str], due: Sequence[float], plan: Plan) -> list[Sample]:
    return await drive(ask, queries, due, connections=plan.connections, patience=plan.patience)
