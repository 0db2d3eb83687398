"""How ``strata bench`` looks at the service under load: its metrics, and its processes."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from contracts.breaker import BreakerState
from contracts.errors import ConfigError
from contracts.trace import STAGES
from deployments.lifecycle import Run
from evaluation.load.quantiles import Histogram, quantiles
from evaluation.load.report import Inside, StageTimes, Usage
from evaluation.load.scrape import Scrape

_PREFIX = "ray_retrieval_"
# Of the raylet: the folder where Ray writes down which ports its processes took.
_SESSION, _PORT_FILE = "--session_dir=", "metrics_export_port_*"
# Processes report to Ray's exporter every 10 s by default.
_SETTLE_S, _LOOK_S = 30.0, 0.5
_SCRAPE_S = 10.0
_MB = 1e6


class Meter:
    """CPU and memory of processes.

    Args:
        processes: Finds them.
    """

    def __init__(self, processes: Callable[[], Iterable[psutil.Process]]) -> None:
        self._processes = processes
        self._started = 0.0
        self._before: dict[psutil.Process, float] = {}

    def begin(self) -> None:
        """Count from now on."""
        self._before = {process: seconds for process in self._processes() if (seconds := _cpu(process)) is not None}
        self._started = time.perf_counter()

    def end(self) -> Usage | None:
        """What was used since; of a process that began meanwhile, all it used. ``None`` when there is none."""
        wall, cores, memory = time.perf_counter() - self._started, defaultdict[str, float](float), 0
        for process in self._processes():
            with suppress(psutil.Error):
                used = process.cpu_times()
                cores[_name(process)] += (used.user + used.system - self._before.get(process, 0.0)) / wall
                memory += _memory(process)
        if not cores:
            return None
        ranked = sorted(cores.items(), key=lambda item: -item[1])
        by_process = {name: round(share, 3) for name, share in ranked}
        return Usage(round(sum(cores.values()), 3), round(memory / _MB, 1), by_process)

    def memory(self) -> dict[str, float]:
        """MB now, by process; those of one name together."""
        found = defaultdict[str, float](float)
        for process in self._processes():
            with suppress(psutil.Error):
                found[_name(process)] += _memory(process) / _MB
        return {name: round(each, 1) for name, each in found.items()}


def _memory(process: psutil.Process) -> int:
    """Bytes; what several processes share counts once, where the system tells it."""
    full = process.memory_full_info()
    return int(getattr(full, "pss", full.rss))


def _cpu(process: psutil.Process) -> float | None:
    with suppress(psutil.Error):
        used = process.cpu_times()
        return float(used.user + used.system)
    return None


def name_of(title: str) -> str:
    """``planner`` of ``ray::ServeReplica:strata:planner``, also while it is in a method: ``….planner.check_health``."""
    return title.rsplit(":", 1)[-1].split(".", 1)[0]


def _name(process: psutil.Process) -> str:
    """The deployment; else the program's name."""
    title = (process.cmdline() or [""])[0]
    return name_of(title) if title.startswith("ray::") else Path(title).name or process.name()


class ServiceWatch:
    """Watches the service from outside.

    Args:
        exporters: URLs of Ray's metrics, one a node; without any, only processes are watched.
        meter: Of its processes, where they are on this machine.
    """

    def __init__(self, exporters: Sequence[str], meter: Meter | None) -> None:
        self._exporters = exporters
        self._meter = meter
        self._last: Scrape | None = None
        self._between = 0

    def expect(self, searches: int) -> None:
        """So many were answered since the last step, or since the first look; the next step waits for them too."""
        self._between += searches

    async def begin(self) -> None:
        """A step begins.

        Raises:
            ConfigError: The metrics can't be had.
        """
        if self._exporters and self._last is None:
            self._last = await self._scrape()
        if self._meter:
            self._meter.begin()

    async def end(self, answered: int) -> Inside:
        """It ended: wait until the service has reported so many answers, and tell what was added.

        Raises:
            ConfigError: The metrics can't be had.
        """
        usage = self._meter.end() if self._meter else None
        before = self._last
        if before is None:
            return Inside(usage=usage)
        end = time.monotonic() + _SETTLE_S
        answered, self._between = answered + self._between, 0
        while True:
            self._last = await self._scrape()
            grown = self._last.since(before)
            settled = _answers(grown) >= answered and not _unreported(grown)
            if settled or time.monotonic() > end:
                break
            await asyncio.sleep(_LOOK_S)
        return inside(grown, answered, usage, settled=settled)

    async def _scrape(self) -> Scrape:
        texts = []
        async with httpx.AsyncClient(timeout=_SCRAPE_S) as http:
            for url in self._exporters:
                try:
                    texts.append((await http.get(url)).raise_for_status().text)
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    raise ConfigError(
                        f"No metrics at {url}: {error or type(error).__name__}.",
                        field="metrics",
                        remedy="Name where Ray exports them: --metrics http://HOST:PORT/metrics",
                    ) from None
        return Scrape.parse(texts, _PREFIX)


def exporters(run: Run | None, url: str, port: int | None) -> list[str]:
    """Where the metrics of a service are.

    Args:
        run: The service, when it was started on this machine.
        url: Where the service answers.
        port: That of the settings, for a service that was not.
    """
    for process in run.processes() if run else ():
        with suppress(psutil.Error, OSError, ValueError):
            for option in process.cmdline():
                if option.startswith(_SESSION):
                    (file,) = Path(option.removeprefix(_SESSION)).glob(_PORT_FILE)
                    # Ray writes -1 when its metrics are off.
                    port = max(0, int(file.read_text(encoding="ascii")))
    return [str(httpx.URL(url).copy_with(scheme="http", port=port, path="/metrics"))] if port else []


def inside(grown: Scrape, answered: int, usage: Usage | None = None, *, settled: bool = True) -> Inside:
    """What the metrics say of a step.

    Args:
        grown: What was added.
        answered: Answers that the client got.
        usage: Of the processes.
        settled: Whether the service had reported all of it.
    """
    notes = []
    if not settled:
        notes.append("The service did not report all of its metrics in time.")
    if (others := _answers(grown) - answered) > 0:
        notes.append(f"The service answered {others:.0f} searches more than were waited for.")
    texts = {use: grown.total(f"{_PREFIX}query_cache_count_total", use=use) for use in ("hit", "miss")}
    asked = sum(texts.values())
    return Inside(
        stages={name: times for name in STAGES if (times := _stage(grown, name))},
        search=grown.histogram(f"{_PREFIX}search_memory_ms").quantiles(),
        cache_hits=round(texts["hit"] / asked, 3) if asked else None,
        usage=usage,
        notes=tuple(notes),
    )


def _stage(grown: Scrape, name: str) -> StageTimes | None:
    seen: Histogram = grown.histogram(f"{_PREFIX}stage_ms", stage=name)
    times, work = seen.quantiles(), grown.histogram(f"{_PREFIX}stage_work_ms", stage=name).quantiles()
    return StageTimes(times, seen.bucket(0.95), work) if times else None


def _answers(grown: Scrape) -> float:
    return sum(grown.total(f"{_PREFIX}search_memory_total", outcome=outcome) for outcome in ("ok", "degraded"))


def _unreported(grown: Scrape) -> bool:
    """Whether a stage's replicas have told of fewer calls than the chain; inside the ingress they tell of none."""
    for name in STAGES:
        work = grown.total(f"{_PREFIX}stage_work_ms_count", stage=name)
        if 0 < work < grown.total(f"{_PREFIX}stage_ms_count", stage=name):
            return True
    return False


class LocalWatch:
    """Watches the stages in this process; an ``Observer`` of the chain.

    Args:
        meter: Of this process.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._ms: dict[str, list[float]] = defaultdict(list)

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        """A stage answered."""
        self._ms[name].append(seconds * 1000)

    def fallback(self, name: str, code: str) -> None:
        """Answers tell of it."""

    def circuit(self, name: str, state: BreakerState) -> None:
        """Answers tell of what it costs."""

    async def begin(self) -> None:
        """A step begins."""
        self._ms.clear()
        self._meter.begin()

    async def end(self, answered: int) -> Inside:
        """It ended: every call's time is known, so quantiles are exact."""
        found = {name: times for name in STAGES if (times := quantiles(self._ms[name]))}
        stages = {name: StageTimes(times, (times.p95_ms, times.p95_ms)) for name, times in found.items()}
        return Inside(stages=stages, usage=self._meter.end())
