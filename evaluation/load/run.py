"""A load test: warm-up, then steps of rising load."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from evaluation.load.config import LoadConfig
from evaluation.load.generator import OK, Ask, Sample, drive
from evaluation.load.queries import mixed
from evaluation.load.report import Inside, Report, Step, doubts, missed, saturation, step
from evaluation.load.schedule import Arrivals, arrivals


class Plan(msgspec.Struct, frozen=True):
    """What is done.

    Args:
        rates: Arrivals a second of each step.
        seconds: How long each step is.
        warm_up: Seconds before the first one, at its rate, that count nowhere.
        queries: What is asked.
        arrivals: How they are spread.
        seed: Of arrivals and the order of queries.
        connections: Requests under way at once, at most.
        patience: Seconds after which a caller gives up.
    """

    rates: Sequence[float]
    seconds: float
    warm_up: float
    queries: Sequence[str]
    arrivals: Arrivals = "poisson"
    seed: int = 0
    connections: int = 256
    patience: float = 10.0


class Watch(Protocol):
    """Looks at the service while load is on it."""

    async def begin(self) -> None:
        """A step begins."""
        ...

    async def end(self, answered: int) -> Inside:
        """It ended, with so many answers."""
        ...


async def run(
    target: str,
    plan: Plan,
    ask: Ask,
    watch: Watch,
    limits: LoadConfig,
    told: Callable[[str], None],
    *,
    own_process: bool = True,
) -> Report:
    """Test a service under load.

    Args:
        target: What is asked, for the report.
        plan: What is done.
        ask: Sends a query.
        watch: Looks at the service.
        limits: What is held against the figures.
        told: What is being done.
        own_process: Whether the client has a process of its own, so that its CPU can be told apart.
    """
    queries = mixed(plan.queries, plan.seed)

    async def load(rate: float, seconds: float, seed: int) -> tuple[list[Sample], Inside, float]:
        due = arrivals(rate, seconds, plan.arrivals, seed)
        await watch.begin()
        wall, cpu = time.perf_counter(), time.process_time()
        samples = await drive(ask, queries, due, connections=plan.connections, patience=plan.patience)
        cores = (time.process_time() - cpu) / (time.perf_counter() - wall)
        return samples, await watch.end(sum(sample.reply.code == OK for sample in samples)), round(cores, 3)

    rates = sorted(plan.rates)
    if plan.warm_up:
        told("Warming up")
        await load(rates[0], plan.warm_up, plan.seed)
    steps: list[Step] = []
    notes: list[str] = []
    for number, rate in enumerate(rates, start=1):
        told(f"{rate:g} searches a second, step {number} of {len(rates)}")
        samples, inside, cores = await load(rate, plan.seconds, plan.seed + number)
        steps.append(step(rate, plan.seconds, samples, inside, cores if own_process else None, limits))
        notes.extend(doubts(steps[-1], inside))
    return Report(
        target=target,
        arrivals=plan.arrivals,
        seconds=plan.seconds,
        queries=len(plan.queries),
        seed=plan.seed,
        steps=tuple(steps),
        saturation=saturation(steps),
        missed=missed(steps, limits),
        notes=tuple(dict.fromkeys(notes)),
    )
