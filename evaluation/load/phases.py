"""Load in phases that follow one another without a gap, and what became of the searches of each."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from evaluation.load.generator import OK, TIMEOUT, UNSENT, Sample
from evaluation.load.quantiles import Quantiles, quantiles
from evaluation.load.schedule import Arrivals, arrivals

# Processes and their memory in MB, by name; none where the service runs elsewhere.
Memory = Callable[[], Mapping[str, float]]

# Statuses that say "not now".
_REFUSALS = ("429 ", "503 ")
# Such windows in a row are no accident.
_IN_A_ROW = 3


class Load(msgspec.Struct, frozen=True):
    """A phase.

    Args:
        name: Of it.
        rate: Arrivals a second, above 0.
        seconds: How long it is.
    """

    name: str
    rate: float
    seconds: float


class Phase(msgspec.Struct, frozen=True):
    """What became of the searches that were due in a phase.

    Args:
        name: Of the phase.
        rate: Arrivals a second.
        seconds: How long it was.
        arrivals: Searches that were due.
        answered: Of these, those answered in time.
        answers_per_s: The same a second.
        degraded: Of the answers, those that lack something.
        admitted: Time of those that were not refused, from when each was due; who gave up counts with its wait.
        refused: Searches that were refused (429, 503), by status and code.
        refusal: Time of a refusal, from when its search was due.
        without_retry_after: Refusals that do not say when to come again.
        retry_after: Least and most seconds that refusals named; ``None`` when none did.
        lost: Neither answered nor refused, by what came instead.
    """

    name: str
    rate: float
    seconds: float
    arrivals: int
    answered: int
    answers_per_s: float
    degraded: int
    admitted: Quantiles | None
    refused: Mapping[str, int]
    refusal: Quantiles | None
    without_retry_after: int
    retry_after: tuple[float, float] | None
    lost: Mapping[str, int]


class Check(msgspec.Struct, frozen=True):
    """A figure held against a limit.

    Args:
        what: The figure.
        value: What was found; ``None`` when there is nothing to go by, and then it is not kept.
        limit: What was asked for.
        kept: Whether it holds.
    """

    what: str
    value: float | None
    limit: float
    kept: bool


def at_most(what: str, value: float | None, limit: float) -> Check:
    """A figure that may be ``limit`` and not more."""
    return Check(what, value, limit, kept=value is not None and value <= limit)


def at_least(what: str, value: float | None, limit: float) -> Check:
    """A figure that must be ``limit`` or more."""
    return Check(what, value, limit, kept=value is not None and value >= limit)


def moments(loads: Sequence[Load], kind: Arrivals, seed: int) -> list[float]:
    """When searches are due, in seconds after the first phase begins, rising."""
    due, start = list[float](), 0.0
    for number, load in enumerate(loads):
        due += [start + moment for moment in arrivals(load.rate, load.seconds, kind, seed + number)]
        start += load.seconds
    return sorted(due)


def phases(loads: Sequence[Load], samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each phase, by when they were due; those that were due at the very end belong to the last."""
    ends = np.cumsum([load.seconds for load in loads])[:-1]
    split: list[list[Sample]] = [[] for _ in loads]
    # What the clock rounds must not send a search that opens a phase into the one before.
    for sample in samples:
        split[int(np.searchsorted(ends, sample.due_s + 1e-6, side="right"))].append(sample)
    return split


def is_refusal(code: str) -> bool:
    """Whether a reply's code says "not now"."""
    return code.startswith(_REFUSALS)


def phase(load: Load, samples: Sequence[Sample]) -> Phase:
    """The figures of a phase.

    Args:
        load: What was asked for.
        samples: Of its searches.
    """
    answered = [sample for sample in samples if sample.reply.code == OK]
    refused = [sample for sample in samples if is_refusal(sample.reply.code)]
    waited = [sample for sample in samples if sample.reply.code in {OK, TIMEOUT, UNSENT}]
    told = [sample.reply.retry_after for sample in refused if sample.reply.retry_after is not None]
    lost = Counter(sample.reply.code for sample in samples if not is_refusal(sample.reply.code))
    del lost[OK]
    return Phase(
        name=load.name,
        rate=round(load.rate, 2),
        seconds=load.seconds,
        arrivals=len(samples),
        answered=len(answered),
        answers_per_s=round(len(answered) / load.seconds, 2),
        degraded=sum(bool(sample.reply.degraded) for sample in answered),
        admitted=quantiles([sample.took_ms for sample in waited]),
        refused=dict(Counter(sample.reply.code for sample in refused).most_common()),
        refusal=quantiles([sample.took_ms for sample in refused]),
        without_retry_after=len(refused) - len(told),
        retry_after=(min(told), max(told)) if told else None,
        lost=dict(lost.most_common()),
    )


def medians(samples: Sequence[Sample], start: float, seconds: float) -> list[float | None]:
    """The median time of each second, milliseconds; what was not answered counts as never.

    Args:
        samples: Of searches.
        start: When the first second begins.
        seconds: How many there are, a last part of one left out.

    Returns:
        ``None`` for a second in which none was due; infinite where more than half were not answered.
    """
    windows: list[list[float]] = [[] for _ in range(int(seconds))]
    for sample in samples:
        at = int(sample.due_s + 1e-6 - start)
        if 0 <= at < len(windows):
            windows[at].append(sample.took_ms if sample.reply.code == OK else math.inf)
    # Of an even number the lower one: the mean of one that is infinite is no number.
    return [sorted(window)[(len(window) - 1) // 2] if window else None for window in windows]


def back_after(windows: Sequence[float | None], limit: float) -> float | None:
    """Seconds until the medians of three seconds in a row are within a limit, counted to the first of them.

    Args:
        windows: From :func:`medians`; a second without a search interrupts nothing.
        limit: Milliseconds.

    Returns:
        ``None`` when that was never so.
    """
    run = 0
    for at, median in enumerate(windows):
        if median is None:
            continue
        run = run + 1 if median <= limit else 0
        if run == 1:
            first = at
        if run == _IN_A_ROW:
            return float(first)
    return None
