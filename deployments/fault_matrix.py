"""The fault matrix: each stage × each fault, what a caller gets meanwhile, and how to find that out on a running graph.

The expectations stand here and nowhere else: the tests, ``strata faults`` and the table in ``docs/faults.md`` are made
of them.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import httpx
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
from deployments.faults import FAULTS, Fault, Switches
from deployments.settings import Settings
from stages.chain import ChainConfig
from stages.guarded import BreakerConfig
from stages.run import StageBudget

READER = "reader"
FAULTY_STAGES = (*STAGES, READER)
# How long a call may take beyond its deadline and still count as in time.
GRACE_MS = 50
_CALLS = 8
_QUEUE = 4
_LATE_MS = 100
_POLL_S = 0.05

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


def tuned(settings: Settings) -> Settings:
    """Settings for the matrix.

    Budgets that a hop on a busy machine keeps, so that the stage that runs out of time is the one with the fault; a
    total that the slowest stage exceeds; circuits that close soon and queues that fill soon.
    """
    budgets = {
        "planner": StageBudget(budget_ms=150, reserve_ms=2),
        "embedder": StageBudget(budget_ms=250, reserve_ms=20),
        "seed_search": StageBudget(budget_ms=400, reserve_ms=40),
        "expander": StageBudget(budget_ms=300, reserve_ms=0),
        "rechecker": StageBudget(budget_ms=150, reserve_ms=15),
        "reranker": StageBudget(budget_ms=1200, reserve_ms=0),
        "assembler": StageBudget(budget_ms=150, reserve_ms=10),
    }
    breaker = BreakerConfig(failures=3, open_ms=300)
    stages = {}
    for name in FAULTY_STAGES:
        stage = getattr(settings.stages, name)
        deployment = stage.deployment.model_copy(update={"max_queued_requests": _QUEUE})
        stages[name] = stage.model_copy(update={"deployment": deployment})
    return settings.model_copy(
        update={
            "chain": ChainConfig(timeout_ms=1000, budgets=budgets, breaker=breaker),
            "server": settings.server.model_copy(update={"read_timeout_ms": 500}),
            "stages": settings.stages.model_copy(update=stages),
        }
    )


class Matrix:
    """Makes the matrix on a running graph. Construct it in the loop that uses it.

    Args:
        client: Sends a key that may search and read; its base is where the graph answers.
        switches: Of the graph.
        settings: Of the graph, as from :func:`tuned`.
        query: Finds at least three hits.
    """

    def __init__(self, client: httpx.AsyncClient, switches: Switches, settings: Settings, query: str) -> None:
        self._client = client
        self._switches = switches
        self._settings = settings
        self._search = {"query": query, "top_k": 3}
        self._uri = ""

    async def rows(self) -> AsyncIterator[Row]:
        """All rows, stage by stage."""
        for expected in EXPECTATIONS:
            yield await self.row(expected)

    async def row(self, expected: Expectation) -> Row:
        """Give a stage a fault, call, and wait until the graph is well again."""
        stage, fault = expected.stage, expected.fault
        deadline = self._deadline_ms(stage)
        places = getattr(self._settings.stages, stage).deployment.max_ongoing_requests
        await self._well(stage)
        late = min(deadline, self._budget_ms(stage)) + _LATE_MS
        async with self._switches.fault(stage, fault, ms=round(late), places=places):
            if fault == "queue full":
                calls = await asyncio.gather(*(self._call(stage) for _ in range(_CALLS)))
            else:
                calls = [await self._call(stage) for _ in range(_CALLS)]
        await self._well(stage)
        return row(expected, calls, deadline)

    async def _well(self, stage: str) -> None:
        """Wait until a stage does its part, and until there is a URI to read."""
        while not self._uri:
            answer = (await self._client.post("/v1/search_memory", json=self._search)).json()
            self._uri = answer["hits"][0]["uri"] if answer.get("hits") else ""
        while (await self._call(stage)).codes:  # noqa: ASYNC110 -- the stage is in another process
            await asyncio.sleep(_POLL_S)

    async def _call(self, stage: str) -> Call:
        path, body = ("read_memory", {"uri": self._uri}) if stage == READER else ("search_memory", self._search)
        started = time.perf_counter()
        response = await self._client.post(f"/v1/{path}", json=body)
        ms = (time.perf_counter() - started) * 1000
        answer = response.json()
        if response.status_code != HTTPStatus.OK:
            return Call(response.status_code, (answer["code"],), ms, answer["retryable"])
        degraded = answer.get("degraded", [])
        codes = tuple(part["reason"].split(":")[0] for part in degraded if part["stage"] == stage)
        return Call(response.status_code, tuple(dict.fromkeys(codes)), ms, _whole(path, answer))

    def _deadline_ms(self, stage: str) -> float:
        server, chain = self._settings.server, self._settings.chain
        return server.read_timeout_ms if stage == READER else chain.timeout_ms

    def _budget_ms(self, stage: str) -> float:
        chain = self._settings.chain
        return self._deadline_ms(stage) if stage == READER else chain.budgets[stage].budget_ms


def _whole(path: str, answer: Mapping[str, Any]) -> bool:
    """Hits, or a block; or no hits because the recall failed, and then it says that another try may help."""
    if path == "read_memory":
        return bool(answer["block"]["overview"])
    without_recall = any(part["stage"] == "seed_search" for part in answer["degraded"])
    return bool(answer["hits"]) or (without_recall and answer["retryable"])


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


def markdown(expectations: Sequence[Expectation] = EXPECTATIONS) -> str:
    """The expectations as a Markdown table."""
    lines = ["| stage | fault | status | named | instead |", "|---|---|---|---|---|"]
    lines += [
        f"| {e.stage} | {e.fault} | {', '.join(map(str, e.statuses))} | {', '.join(e.codes)} | {e.instead} |"
        for e in expectations
    ]
    return "\n".join(lines)
