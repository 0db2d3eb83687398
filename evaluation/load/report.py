"""What a load test found, step by step, and what of it misses its limits."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from contracts.trace import STAGES, Trace
from evaluation.load.config import SEARCH, LoadConfig
from evaluation.load.generator import OK, TIMEOUT, UNSENT, Sample
from evaluation.load.quantiles import Quantiles, quantiles

# What the caller waited for; an HTTP error is quick, and says nothing of how long an answer takes.
_WAITED = {OK, TIMEOUT, UNSENT}
_TRACE_FIELDS = dict(
    zip(
        STAGES,
        ("planner_ms", "embed_ms", "seed_ms", "hierarchical_ms", "recheck_ms", "rerank_ms", "assemble_ms"),
        strict=True,
    )
)
# Times in answers are rounded to whole milliseconds.
_ROUNDED_MS = 1.0


class Usage(msgspec.Struct, frozen=True):
    """What the service's processes took while a step went on.

    Args:
        cores: CPU seconds a second.
        memory_mb: Memory at its end; what several processes share counts once (PSS, where the system tells it).
        cores_by_process: By deployment, or by program for Ray's own.
    """

    cores: float
    memory_mb: float
    cores_by_process: Mapping[str, float] = {}


class StageTimes(msgspec.Struct, frozen=True):
    """Calls of a stage as the service saw them.

    Args:
        times: As the chain saw them, hop included; those given up are not among them.
        p95_between: The bounds that the 95th percentile surely lies between.
        work: The stage's own work, without the hop; those given up are among them.
    """

    times: Quantiles
    p95_between: tuple[float, float]
    work: Quantiles | None = None


class Inside(msgspec.Struct, frozen=True):
    """What the service says of a step; empty where it can't be asked.

    Args:
        stages: By name.
        search: Whole searches, without HTTP and without waiting in front of the ingress.
        cache_hits: Share of query texts whose vectors came from the embedder's cache.
        usage: Of its processes.
        notes: What makes the figures less certain.
    """

    stages: Mapping[str, StageTimes] = {}
    search: Quantiles | None = None
    cache_hits: float | None = None
    usage: Usage | None = None
    notes: tuple[str, ...] = ()


class Stage(msgspec.Struct, frozen=True):
    """A stage under one step of load.

    Args:
        name: Of the stage.
        budget_ms: For its 95th percentile; ``None`` when it has none.
        service: From the service's histograms, where they can be seen.
        work: The same without the hop.
        answers: From the traces of the answers, whole milliseconds a search.
    """

    name: str
    budget_ms: float | None
    service: Quantiles | None
    work: Quantiles | None
    answers: Quantiles | None

    @property
    def times(self) -> Quantiles | None:
        """What counts: the histogram where there is one."""
        return self.service or self.answers


class Step(msgspec.Struct, frozen=True):
    """One step of load.

    Args:
        rate: Arrivals a second.
        arrivals: Searches that were due.
        answered: Of these, those answered in time.
        throughput: Answers a second, until the last one.
        whole: Those of them that lack nothing; under load a service may answer quickly because it answers less.
        saturated: Whether whole answers fell behind the arrivals.
        latency: From when a search was due until its answer, or until the caller gave up.
        late: How much of it the search waited for the client itself.
        service: A search inside the ingress, from the service's histogram.
        failed: Searches without an answer, by what came instead.
        degraded: Answers that lack something, by stage and code; one may lack several things.
        degraded_share: Answers that lack anything, of all answers.
        stages: In the order of the chain.
        cache_hits: See :class:`Inside`.
        usage: Of the service, where it runs on this machine.
        client_cores: CPU of the client that made the load; ``None`` when the service ran in its process.
    """

    rate: float
    arrivals: int
    answered: int
    throughput: float
    whole: float
    saturated: bool
    latency: Quantiles | None
    late: Quantiles | None
    service: Quantiles | None
    failed: Mapping[str, int]
    degraded: Mapping[str, int]
    degraded_share: float
    stages: tuple[Stage, ...]
    cache_hits: float | None
    usage: Usage | None
    client_cores: float | None

    @property
    def failed_share(self) -> float:
        """Searches that failed, of all."""
        return 1 - self.answered / self.arrivals


class Missed(msgspec.Struct, frozen=True):
    """A limit that was not kept.

    Args:
        rate: Under which load.
        what: A stage or ``search_memory``, whose 95th percentile it is; ``failed`` or ``degraded``, whose share it is.
        value: What was found; ``None`` when there is nothing to go by.
        limit: What was allowed.
    """

    rate: float
    what: str
    value: float | None
    limit: float


class Saturation(msgspec.Struct, frozen=True):
    """Where more load brings no more answers.

    Args:
        sustained: The highest rate that was kept up with, and all below it; ``None`` when there is none.
        reached: The lowest rate that was not; ``None`` when there is none. The knee lies between the two.
        capacity: Most whole answers a second of any step, once saturation was reached.
    """

    sustained: float | None
    reached: float | None
    capacity: float | None


class Report(msgspec.Struct, frozen=True):
    """A load test.

    Args:
        target: What was asked: a URL, or ``in-process``.
        arrivals: ``poisson`` or ``constant``.
        seconds: How long each step was.
        queries: Different ones that there were to ask.
        seed: Of arrivals and queries.
        steps: By rising rate.
        saturation: Where it was reached.
        missed: Limits that were not kept; empty when all is well.
        notes: What makes the figures less certain.
    """

    target: str
    arrivals: str
    seconds: float
    queries: int
    seed: int
    steps: tuple[Step, ...]
    saturation: Saturation
    missed: tuple[Missed, ...]
    notes: tuple[str, ...]


def step(
    rate: float,
    seconds: float,
    samples: Sequence[Sample],
    inside: Inside,
    client_cores: float | None,
    limits: LoadConfig,
) -> Step:
    """Sum up a step.

    Args:
        rate: Arrivals a second.
        seconds: How long they went on.
        samples: One for each, at least one.
        inside: What the service says.
        client_cores: CPU of the client.
        limits: Budgets, and what counts as saturated.
    """
    answered = [sample for sample in samples if sample.reply.code == OK]
    lacking = [sample.reply.degraded for sample in answered if sample.reply.degraded]
    degraded_share = len(lacking) / len(answered) if answered else 0.0
    throughput = _throughput(answered, seconds)
    whole = throughput * (1 - degraded_share)
    return Step(
        rate=rate,
        arrivals=len(samples),
        answered=len(answered),
        throughput=round(throughput, 2),
        whole=round(whole, 2),
        saturated=whole < limits.keeps_up * len(samples) / seconds,
        latency=quantiles([sample.took_ms for sample in samples if sample.reply.code in _WAITED]),
        late=quantiles([sample.late_ms for sample in samples]),
        service=inside.search,
        failed=_counted(sample.reply.code for sample in samples if sample.reply.code != OK),
        degraded=_counted(f"{part.stage} {part.reason.split(':', 1)[0]}" for parts in lacking for part in parts),
        degraded_share=degraded_share,
        stages=tuple(_stages([sample.reply.trace for sample in answered if sample.reply.trace], inside, limits)),
        cache_hits=inside.cache_hits,
        usage=inside.usage,
        client_cores=client_cores,
    )


def _throughput(answered: Sequence[Sample], seconds: float) -> float:
    """Answers a second until the last one; the quickest answer's time is not held against the service."""
    if not answered:
        return 0.0
    quickest = min(sample.took_ms for sample in answered) / 1000
    return len(answered) / max(seconds, max(sample.done_s for sample in answered) - quickest)


def _counted(names: Iterator[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _stages(traces: Sequence[Trace], inside: Inside, limits: LoadConfig) -> Iterator[Stage]:
    for name in STAGES:
        answers = quantiles([getattr(trace, _TRACE_FIELDS[name]) for trace in traces])
        seen = inside.stages.get(name)
        service, work = (seen.times, seen.work) if seen else (None, None)
        yield Stage(name, limits.p95_ms.get(name), service, work, answers)


def doubts(step: Step, inside: Inside) -> Iterator[str]:
    """What the service's figures and the client's don't agree on."""
    where = f"At {step.rate:g}/s"
    yield from (f"{where}: {note}" for note in inside.notes)
    for stage in step.stages:
        seen, told = inside.stages.get(stage.name), stage.answers
        # With a second look, or a call given up, the two are not about the same calls.
        given_up = any(name.startswith(f"{stage.name} ") for name in step.degraded)
        if not seen or not told or seen.times.count != told.count or given_up:
            continue
        low, high = seen.p95_between
        if not low - _ROUNDED_MS <= told.p95_ms <= high + _ROUNDED_MS:
            yield (
                f"{where}: the P95 of {stage.name} is {told.p95_ms:g} ms in answers, "
                f"but between {low:g} and {high:g} ms in the histogram."
            )


def saturation(steps: Sequence[Step]) -> Saturation:
    """The load from which more brings no more answers.

    Args:
        steps: By rising rate.
    """
    first = next((at for at, each in enumerate(steps) if each.saturated), None)
    kept_up = steps[:first]
    return Saturation(
        sustained=kept_up[-1].rate if kept_up else None,
        reached=None if first is None else steps[first].rate,
        capacity=None if first is None else max(each.whole for each in steps),
    )


def missed(steps: Sequence[Step], limits: LoadConfig) -> tuple[Missed, ...]:
    """The limits that a step did not keep; a budget without a figure to hold against it is not kept either."""
    return tuple(each for step in steps for each in _missed(step, limits))


def _missed(step: Step, limits: LoadConfig) -> Iterator[Missed]:
    times = {SEARCH: step.latency} | {stage.name: stage.times for stage in step.stages}
    for name, budget in limits.p95_ms.items():
        found = times[name]
        if found is None or found.p95_ms > budget:
            yield Missed(step.rate, name, found.p95_ms if found else None, budget)
    for what, share, most in (
        ("failed", step.failed_share, limits.max_failed),
        ("degraded", step.degraded_share, limits.max_degraded),
    ):
        if share > most:
            yield Missed(step.rate, what, round(share, 4), most)
