"""The fault matrix: each stage × each fault, and what a caller gets meanwhile.

The expectations stand here and nowhere else: the tests, ``strata faults`` and the table in ``docs/faults.md`` are made
of them.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Literal, get_args

import msgspec

from contracts.errors import (
    AssemblyFailed,
    Overloaded,
    RecallFailed,
    RecheckFailed,
    StageDown,
    StageError,
    StageFailed,
    StageTimeout,
    StrataError,
)
from contracts.trace import STAGES

Fault = Literal["raises", "hangs", "slow", "killed", "garbage", "queue full"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
READER = "reader"
FAULTY_STAGES = (*STAGES, READER)
# How long a call may take beyond its deadline and still count as in time.
GRACE_MS = 50

_INSTEAD = {
    "planner": "all three context types",
    "embedder": "keyword recall",
    "seed_search": "no hits, retryable",
    "expander": "the seeds",
    "rechecker": "hits unchecked for relevance",
    "reranker": "the order before it",
    "assembler": "blocks made from the hits",
    READER: "an error, retryable",
}
_FAILED: Mapping[str, type[StageError]] = {
    "seed_search": RecallFailed,
    "rechecker": RecheckFailed,
    "assembler": AssemblyFailed,
}


class Expectation(msgspec.Struct, frozen=True):
    """What a caller gets while a stage has a fault.

    Args:
        stage: The stage.
        fault: The fault.
        errors: What is named for the stage: in ``degraded`` of a search, as the error of a read. One of the first
            ones comes before the circuit opens.
        instead: What answers in its place.
    """

    stage: str
    fault: Fault
    errors: tuple[type[StrataError], ...]
    instead: str

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of ``errors``."""
        return tuple(error.code for error in self.errors)

    @property
    def statuses(self) -> tuple[int, ...]:
        """HTTP statuses: a search is always answered."""
        return tuple(sorted({error.http_status for error in self.errors})) if self.stage == READER else (HTTPStatus.OK,)


def expectation(stage: str, fault: Fault) -> Expectation:
    """What is expected of a stage with a fault."""
    failed = _FAILED.get(stage, StageFailed)
    errors: tuple[type[StrataError], ...]
    match fault:
        case "raises" | "garbage":
            errors = (failed, StageDown)
        case "hangs" | "slow":
            errors = (StageTimeout, StageDown)
        case "killed":
            errors = (failed, StageTimeout, StageDown)
        case "queue full":
            errors = (Overloaded, StageTimeout, StageDown)
    return Expectation(stage, fault, errors, _INSTEAD[stage])


EXPECTATIONS = tuple(expectation(stage, fault) for stage in FAULTY_STAGES for fault in FAULTS)


class Call(msgspec.Struct, frozen=True):
    """One call made while a stage had a fault.

    Args:
        status: Of the answer.
        codes: What the answer names for the stage; nothing when the stage did its part.
        ms: Until the answer was there.
        whole: Whether the rest of the answer is as it should be.
    """

    status: int
    codes: tuple[str, ...]
    ms: float
    whole: bool


class Row(msgspec.Struct, frozen=True):
    """One row of the matrix: what calls got, and what of that was not expected."""

    stage: str
    fault: Fault
    statuses: dict[int, int]
    codes: dict[str, int]
    p50_ms: float
    max_ms: float
    calls: int
    in_time: int
    problems: tuple[str, ...]


def row(expected: Expectation, calls: Sequence[Call], deadline_ms: float) -> Row:
    """Hold calls to what is expected of them."""
    # A killed replica comes back by itself, so that answers may be whole again before the calls are over.
    passing = expected.fault == "killed"
    named = Counter(code for call in calls for code in call.codes)
    problems = []
    if statuses := {call.status for call in calls} - {*expected.statuses, *([HTTPStatus.OK] if passing else [])}:
        problems.append(f"status {', '.join(map(str, sorted(statuses)))}")
    if codes := named.keys() - set(expected.codes):
        problems.append(f"named {', '.join(sorted(codes))}")
    if not named.keys() - {StageDown.code}:
        problems.append("the fault was not named")
    if not passing and not all(call.codes for call in calls):
        problems.append("an answer does not name the fault")
    if not all(call.whole for call in calls):
        problems.append(f"an answer without {expected.instead}")
    return Row(
        expected.stage,
        expected.fault,
        dict(sorted(Counter(call.status for call in calls).items())),
        dict(sorted(named.items())),
        statistics.median(call.ms for call in calls),
        max(call.ms for call in calls),
        len(calls),
        sum(call.ms <= deadline_ms + GRACE_MS for call in calls),
        tuple(problems),
    )


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of text, and how many calls were in time."""
    cells = [("stage", "fault", "status", "named", "p50 ms", "max ms", "in time", "as expected")]
    cells += [
        (
            *(each.stage, each.fault, _counts(each.statuses), _counts(each.codes)),
            *(f"{each.p50_ms:.0f}", f"{each.max_ms:.0f}", f"{each.in_time}/{each.calls}"),
            "; ".join(each.problems) or "yes",
        )
        for each in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    calls, in_time = sum(each.calls for each in rows), sum(each.in_time for each in rows)
    return [*lines, f"{in_time / calls:.1%} of {calls} calls were answered within their deadline + {GRACE_MS} ms."]


def _counts(counts: Mapping[int, int] | Mapping[str, int]) -> str:
    return " ".join(f"{name}×{count}" for name, count in counts.items())


def markdown() -> str:
    """The expectations as a Markdown table; the code of an open circuit, which every cell would have, is left out."""
    lines = [f"| stage | instead | {' | '.join(FAULTS)} |", "|---" * (len(FAULTS) + 2) + "|"]
    for stage in FAULTY_STAGES:
        cells = (expectation(stage, fault).codes for fault in FAULTS)
        shown = (", ".join(code for code in codes if code != StageDown.code) for codes in cells)
        lines.append(f"| {stage} | {_INSTEAD[stage]} | {' | '.join(shown)} |")
    return "\n".join(lines)
