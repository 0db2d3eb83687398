"""Half of what a service bears, for long: nothing may grow without bound."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from evaluation.load.config import SEARCH, LoadConfig, OverloadConfig
from evaluation.load.generator import Ask, drive
from evaluation.load.phases import Check, Load, Memory, Phase, at_most, moments, phase, phases
from evaluation.load.queries import mixed
from evaluation.load.run import Plan

# Names the sum over all processes among them.
ALL = "all"
# A soak is looked at that many times, and no oftener than once a second.
_LOOKS, _LEAST_S = 240, 1.0
_LEAST_POINTS = 3
_PARTS = 4
_HOUR = 3600.0


class Growth(msgspec.Struct, frozen=True):
    """How the memory of a process changed while the soak went on, once it had settled.

    Args:
        name: Of the process: a deployment, a program, or ``all``.
        first_mb: When the soak began.
        last_mb: When it ended.
        slope_mb_per_h: Of the line that fits best (least squares).
        growth: What that line gained over the time it was fitted to, of where it began.
        flat: Whether that is little.
    """

    name: str
    first_mb: float
    last_mb: float
    slope_mb_per_h: float
    growth: float
    flat: bool


class Soak(msgspec.Struct, frozen=True):
    """What hours of load did.

    Args:
        target: What was asked: a URL.
        rate: Arrivals a second.
        seconds: How long.
        quarters: What became of the searches of each quarter.
        seen_s: When memory was looked at, seconds after the soak began.
        memory_mb: What was seen, by process; ``None`` where a process was not there.
        growth: Of each process that was there from when it had settled until the end, the largest first.
        checks: The verdict.
    """

    target: str
    rate: float
    seconds: float
    quarters: tuple[Phase, ...]
    seen_s: tuple[float, ...]
    memory_mb: Mapping[str, tuple[float | None, ...]]
    growth: tuple[Growth, ...]
    checks: tuple[Check, ...]

    @property
    def missed(self) -> bool:
        """Whether a check failed."""
        return not all(check.kept for check in self.checks)


async def soak(
    target: str, plan: Plan, ask: Ask, memory: Memory, limits: LoadConfig, told: Callable[[str], None]
) -> Soak:
    """Put a steady load on a service, and look at its memory all along.

    Args:
        target: What is asked, for the report.
        plan: ``seconds`` is how long, the first of ``rates`` the load.
        ask: Sends a query.
        memory: Looks at the service's processes; in a thread, for it takes a while.
        limits: What is held against the figures.
        told: What is being done.
    """
    rate, quarter = plan.rates[0], plan.seconds / _PARTS
    loads = [Load(f"quarter {number}", rate, quarter) for number in range(1, _PARTS + 1)]
    queries = mixed(plan.queries, plan.seed)
    if plan.warm_up:
        told("Warming up")
        due = moments([Load("", rate, plan.warm_up)], plan.arrivals, plan.seed)
        await drive(ask, queries, due, connections=plan.connections, patience=plan.patience)
    clock = asyncio.get_running_loop().time
    began, seen, looks = clock(), list[float](), list[Mapping[str, float]]()

    async def look() -> None:
        while True:
            looks.append(await asyncio.to_thread(memory))
            seen.append(clock() - began)
            told(f"{rate:g} searches a second, {seen[-1] / 60:.1f} of {plan.seconds / 60:g} min")
            await asyncio.sleep(max(_LEAST_S, plan.seconds / _LOOKS))

    due = moments(loads, plan.arrivals, plan.seed + 1)
    looking = asyncio.create_task(look())
    try:
        samples = await drive(ask, queries, due, connections=plan.connections, patience=plan.patience)
    finally:
        looking.cancel()
    quarters = tuple(phase(load, part) for load, part in zip(loads, phases(loads, samples), strict=True))
    series = by_process(looks[: len(seen)])
    growth = tuple(grown(seen, series, limits.overload))
    return Soak(
        target=target,
        rate=rate,
        seconds=plan.seconds,
        quarters=quarters,
        seen_s=tuple(round(each, 1) for each in seen),
        memory_mb=series,
        growth=growth,
        checks=tuple(_checks(quarters, growth, limits)),
    )


def by_process(looks: Sequence[Mapping[str, float]]) -> dict[str, tuple[float | None, ...]]:
    """A series for each process, and their sum.

    Args:
        looks: MB by process, once a look.
    """
    names = sorted({name for look in looks for name in look})
    series: dict[str, tuple[float | None, ...]] = {ALL: tuple(round(sum(look.values()), 1) for look in looks)}
    return series | {name: tuple(look.get(name) for look in looks) for name in names} if names else {}


def grown(
    seen: Sequence[float], series: Mapping[str, Sequence[float | None]], limits: OverloadConfig
) -> Iterator[Growth]:
    """How each process grew, the largest first; those that came later, or went, are only in the sum.

    Args:
        seen: Seconds after the soak began, rising.
        series: MB at these moments, by process.
        limits: What is flat, and from when on it counts.
    """
    settled = [at for at, moment in enumerate(seen) if moment >= limits.settle * seen[-1]]
    if len(settled) < _LEAST_POINTS:
        return
    moments = np.array([seen[at] for at in settled])
    for name, values in sorted(series.items(), key=lambda item: -(item[1][-1] or 0.0)):
        kept = [value for at in settled if (value := values[at]) is not None]
        if len(kept) < len(settled):
            continue
        slope, start = np.polyfit(moments - moments[0], kept, 1)
        gained = float(slope * (moments[-1] - moments[0]))
        yield Growth(
            name=name,
            first_mb=round(next(value for value in values if value is not None), 1),
            last_mb=round(kept[-1], 1),
            slope_mb_per_h=round(float(slope) * _HOUR, 2),
            growth=round(gained / float(start), 4),
            flat=gained <= max(limits.max_growth * float(start), limits.slack_mb),
        )


def _checks(quarters: Sequence[Phase], growth: Sequence[Growth], limits: LoadConfig) -> Iterator[Check]:
    first, last = quarters[0], quarters[-1]
    if (budget := limits.p95_ms.get(SEARCH)) is not None:
        for each in (first, last):
            yield at_most(f"P95, {each.name}, ms", each.admitted.p95_ms if each.admitted else None, budget)
    failed = sum(each.arrivals - each.answered for each in quarters) / max(1, sum(each.arrivals for each in quarters))
    yield at_most("share not answered", round(failed, 4), limits.max_failed)
    whole = next((each for each in growth if each.name == ALL), None)
    yield at_most("growth of memory", whole.growth if whole else None, limits.overload.max_growth)
    yield at_most("processes that grow", float(sum(not each.flat for each in growth)) if growth else None, 0)
