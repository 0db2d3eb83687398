"""Makes the fault matrix on a running graph: gives a stage a fault, calls, and waits until all is well again."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import httpx

from deployments.faults.matrix import EXPECTATIONS, FAULTY_STAGES, READER, Call, Expectation, Row, row
from deployments.faults.replica import Switches
from deployments.limits.config import AdmissionConfig
from deployments.settings import Settings
from stages.chain import ChainConfig
from stages.guarded import BreakerConfig
from stages.run import StageBudget

_CALLS = 8
_QUEUE = 4
_LATE_MS = 100
_POLL_S = 0.05


def tuned(settings: Settings) -> Settings:
    """Settings for the matrix.

    Budgets that a hop on a busy machine keeps, so that the stage that runs out of time is the one with the fault; a
    total that the slowest stage exceeds; circuits that close soon and queues that fill soon. That stages are slow must
    not keep searches from them.
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
            "limits": settings.limits.model_copy(update={"admission": AdmissionConfig(target_ms=None)}),
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
        places = getattr(self._settings.stages, stage).deployment.places(wire=True)
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
            again = answer["retryable"] and "retry-after" in response.headers
            return Call(response.status_code, (answer["code"],), ms, again)
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
