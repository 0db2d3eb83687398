"""Searches through the whole chain, one at a time: times and CPU by stage, and memory."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast
from uuid import uuid4

import msgspec
import numpy as np
import psutil

from contracts.breaker import BreakerState
from contracts.context import RequestContext
from contracts.errors import ConfigError, StageFailed
from contracts.ports import Embedded, TextRole, Vectors
from contracts.records import ModelRef
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.trace import STAGES
from evaluation.growth.forest import Question
from evaluation.load.quantiles import Quantiles, quantiles

_TOP_K = 10
_MB = 1e6

Ask = Callable[[RequestContext, SearchMemoryRequest], Awaitable[SearchMemoryResponse]]


class StageFigures(msgspec.Struct, frozen=True):
    """A stage, its calls of one search together: times, and CPU of this process a search, mean, milliseconds."""

    times: Quantiles
    cpu_ms: float


class Searches(msgspec.Struct, frozen=True):
    """How searches went.

    Args:
        total: Times of whole searches.
        stages: By name, in order.
        other_cpu_ms: CPU of this process a search besides, mean: redaction, and what goes on in the background.
        nodes_cpu_ms: CPU of the cluster's nodes a search, mean; 0 without a cluster.
        hits: Of an answer, mean; ten were asked for.
        degraded: Answers that lacked something, whose times say little.
        rss_before_mb: Resident memory of the process before it opened the index, its libraries loaded.
        rss_mb: The same after the last search.
        nodes: The cluster's nodes; empty without a cluster.
    """

    total: Quantiles
    stages: dict[str, StageFigures]
    other_cpu_ms: float
    nodes_cpu_ms: float
    hits: float
    degraded: int
    rss_before_mb: float
    rss_mb: float
    nodes: tuple["NodeUsage", ...] = ()

    def cpu_ms(self) -> dict[str, float]:
        """CPU a search by part: the stages, ``other`` and, where there is a cluster, its ``nodes``."""
        parts = {name: stage.cpu_ms for name, stage in self.stages.items()} | {"other": self.other_cpu_ms}
        return parts | ({"nodes": self.nodes_cpu_ms} if self.nodes else {})


class NodeUsage(msgspec.Struct, frozen=True):
    """What a node of a cluster uses.

    Args:
        name: The node's.
        cpu_s: Since it started, seconds.
        heap_mb: Of the JVM's heap, dead objects among it.
        rss_mb: Resident memory of its process; ``None`` when it runs on another machine.
    """

    name: str
    cpu_s: float
    heap_mb: float
    rss_mb: float | None


class Watch(Protocol):
    """Looks at a cluster."""

    async def usage(self) -> tuple[NodeUsage, ...]:
        """What each node uses now."""
        ...


class NoCluster:
    """Where there is none to look at."""

    async def usage(self) -> tuple[NodeUsage, ...]:
        """See ``Watch``."""
        return ()


class StageTimes:
    """An ``Observer`` that adds up times and CPU by stage; one search at a time.

    All the CPU of the process between two reports is the later stage's.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A search begins."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.cpu_seconds: dict[str, float] = defaultdict(float)
        self._cpu = time.process_time()

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        """See ``Observer``."""
        cpu = time.process_time()
        self.seconds[name] += seconds
        self.cpu_seconds[name] += cpu - self._cpu
        self._cpu = cpu

    def fallback(self, name: str, code: str) -> None:
        """See ``Observer``; answers tell of it."""

    def circuit(self, name: str, state: BreakerState) -> None:
        """See ``Observer``; answers tell of what it costs."""


class KnownTexts:
    """An ``Embedder`` that has the vectors of questions ready, so that no model's work is measured.

    Args:
        model: Whose vectors they would be.
        questions: The only texts it will be asked for.
    """

    def __init__(self, model: ModelRef, questions: Sequence[Question]) -> None:
        self.model = model
        self._vectors = {question.text.strip(): question.vector for question in questions}

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        """See ``Embedder``.

        Raises:
            StageFailed: A text is none of the questions.
        """
        try:
            found: Vectors = np.stack([self._vectors[text] for text in texts])
        except KeyError:
            raise StageFailed("There is no vector for a text.", stage="embedder") from None
        return Embedded(found)


def rss_mb() -> float:
    """Resident memory of this process."""
    return round(psutil.Process().memory_info().rss / _MB, 1)


async def search(
    ask: Ask, questions: Sequence[Question], warm_up: int, stages: StageTimes, watch: Watch, rss_before_mb: float
) -> Searches:
    """Ask questions one after the other.

    Args:
        ask: The chain.
        questions: What is asked.
        warm_up: How many of the questions come first and count nowhere.
        stages: What the chain tells.
        watch: Looks at the cluster.
        rss_before_mb: See ``Searches``.

    Raises:
        ConfigError: There are too few questions.
    """
    if len(questions) <= warm_up:
        raise ConfigError(f"{len(questions)} questions are too few.", field="questions", remedy="Ask more.")
    for question in questions[:warm_up]:
        await _timed(ask, question, stages)
    before, began = await watch.usage(), time.process_time()
    samples = [await _timed(ask, question, stages) for question in questions[warm_up:]]
    spent = time.process_time() - began
    after = await watch.usage()

    def mean_ms(seconds: float) -> float:
        return round(seconds * 1000 / len(samples), 3)

    cpu = {name: sum(each.cpu_seconds[name] for each in samples) for name in STAGES}
    return Searches(
        total=_quantiles([each.total for each in samples]),
        stages={
            name: StageFigures(_quantiles([each.seconds[name] for each in samples]), mean_ms(cpu[name]))
            for name in STAGES
        },
        other_cpu_ms=mean_ms(max(0.0, spent - sum(cpu.values()))),
        nodes_cpu_ms=mean_ms(_cpu_s(after) - _cpu_s(before)),
        hits=round(sum(each.hits for each in samples) / len(samples), 2),
        degraded=sum(each.degraded for each in samples),
        rss_before_mb=rss_before_mb,
        rss_mb=rss_mb(),
        nodes=after,
    )


class _Sample(NamedTuple):
    """A search: seconds in all, by stage and of CPU by stage; and what it answered."""

    total: float
    seconds: Mapping[str, float]
    cpu_seconds: Mapping[str, float]
    hits: int
    degraded: bool


async def _timed(ask: Ask, question: Question, stages: StageTimes) -> _Sample:
    ctx = RequestContext(question.account_id, request_id=uuid4().hex)
    request = SearchMemoryRequest(query=question.text, top_k=_TOP_K)
    stages.begin()
    started = time.perf_counter()
    answer = await ask(ctx, request)
    total = time.perf_counter() - started
    return _Sample(total, stages.seconds, stages.cpu_seconds, len(answer.hits), bool(answer.degraded))


def _quantiles(seconds: Sequence[float]) -> Quantiles:
    # None of no times; there is one at least.
    return cast("Quantiles", quantiles([each * 1000 for each in seconds]))


def _cpu_s(nodes: Sequence[NodeUsage]) -> float:
    return sum(node.cpu_s for node in nodes)
