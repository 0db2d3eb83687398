"""The process behind ``strata bench overhead``: graphs of its own on one small index, and the chain in this process.

All answer the same queries in turn, burst by burst, so that whatever else the machine does meets them alike. The
report goes to a file; the process then ends with exit code 0.
"""

import argparse
import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec
import psutil

from contracts.trace import STAGES
from deployments.lifecycle import free_port
from deployments.server import stop_at_end_of_input, stop_on_signals, with_port
from deployments.settings import Settings, load
from deployments.stage_settings import ColocatedStage
from evaluation.load.generator import OK, Ask
from stages.run import StageBudget

if TYPE_CHECKING:
    from deployments.overhead.empty import Recorder
    from deployments.overhead.report import Burst, Figures, Report

ACCOUNT = "overhead"
# Where the report is, in the folder of the run.
REPORT = "report.json"
# Packages that every Python has; some thousand records.
_PACKAGES = ("asyncio", "concurrent", "email", "http", "json", "logging", "multiprocessing", "unittest", "xml")
_TOP_K = 10
# More queries would only make the recorded answers larger.
_QUERIES = 24
_CLIENTS = (1, 8)
_PATIENT_MS = 30_000
# Every stage a deployment, of those that do nothing or of the real ones; then with all in the ingress that may be.
EMPTY, FULL, COLOCATED = "empty stages", "full graph", "co-located"
# The full graph once more.
PROXIED = "by the proxy"
# Their Serve applications.
_APPS = {EMPTY: "empty", FULL: "full", COLOCATED: "colocated", PROXIED: "full"}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m deployments.overhead.run")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="an empty one, for everything")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    arguments = parser.parse_args()
    threading.Thread(target=stop_at_end_of_input, args=[arguments.folder], daemon=True).start()
    stop_on_signals()
    settings = own(with_port(load(arguments.config), arguments.port), arguments.folder)
    # Serve reads its switches when it is imported.
    os.environ.update(settings.ray.environment)
    report = run(settings, arguments.rounds, arguments.requests)
    (arguments.folder / REPORT).write_bytes(msgspec.json.encode(report))


def own(settings: Settings, folder: Path) -> Settings:
    """The settings, but with a cluster and data of their own, vectors without a model, and nothing but searches.

    All of them are let in, and each stage gets the time it takes: to refuse and to degrade is quick, and would look
    like speed.
    """
    admission = settings.limits.admission.model_copy(update={"target_ms": None})
    budgets = dict.fromkeys(STAGES, StageBudget(budget_ms=_PATIENT_MS, reserve_ms=0))
    chain = settings.chain.model_copy(update={"timeout_ms": _PATIENT_MS, "budgets": budgets})
    return settings.model_copy(
        update={
            "limits": settings.limits.model_copy(update={"admission": admission}),
            "chain": chain,
            "data_dir": folder / "data",
            "ray": settings.ray.model_copy(update={"address": None}),
            "embedder": settings.embedder.model_copy(update={"backend": "deterministic"}),
            "corpora": settings.corpora.model_copy(update={"enabled": ()}),
            "gateway": settings.gateway.model_copy(update={"enabled": False}),
            "knowledge_base": settings.knowledge_base.model_copy(update={"enabled": False, "http": False}),
        }
    )


def run(settings: Settings, rounds: int, requests: int) -> "Report":
    """Start the graphs, measure, and stop them."""
    from deployments import graph  # noqa: PLC0415
    from deployments.overhead.empty import emptied  # noqa: PLC0415

    graphs = {name: _with_door(settings) for name in (EMPTY, FULL)} | {COLOCATED: _with_door(_colocated(settings))}
    try:
        graph.start(settings)
        records = asyncio.run(_ingest(settings))
        recorder, queries = asyncio.run(_record(settings))
        for name, its in graphs.items():
            variant = {"variant": emptied(recorder.answers)} if name == EMPTY else {}
            graph.deploy(its, name=_APPS[name], route=f"/{_APPS[name]}", **variant)
        stop_on_signals()  # Ray puts handlers of its own in place.
        return asyncio.run(_measure(graphs, recorder, queries, records, rounds, requests))
    finally:
        graph.shutdown(settings)


def _with_door(settings: Settings) -> Settings:
    return settings.model_copy(update={"server": settings.server.model_copy(update={"direct_port": free_port()})})


def _colocated(settings: Settings) -> Settings:
    light = set(get_args(ColocatedStage)) - ({"reranker"} if settings.stages.reranker.config.kind != "none" else set())
    stages = settings.stages.model_copy(update={"colocate": tuple(sorted(light))})
    return settings.model_copy(update={"stages": stages})


async def _ingest(settings: Settings) -> int:
    """Fill the index; the number of records."""
    import sysconfig  # noqa: PLC0415

    from corpora.context.python_library import PythonLibrarySource  # noqa: PLC0415
    from deployments.backends import open_writer  # noqa: PLC0415
    from index.ingest import Ingest  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    index = await open_writer(settings.data_dir, settings.index)
    try:
        ingest = Ingest(index, index, load_embedder(settings.embedder), settings.ingest)
        folder = Path(sysconfig.get_path("stdlib"))
        return sum([(await ingest.run(ACCOUNT, PythonLibrarySource(folder / each))).nodes for each in _PACKAGES])
    finally:
        await index.close()


async def _record(settings: Settings) -> "tuple[Recorder, list[str]]":
    """What each stage answers to each query."""
    from contracts.context import RequestContext  # noqa: PLC0415
    from contracts.requests import SearchMemoryRequest  # noqa: PLC0415
    from deployments.local import open_local  # noqa: PLC0415
    from deployments.overhead.empty import Recorder  # noqa: PLC0415
    from evaluation.load.queries import BUILT_IN  # noqa: PLC0415

    recorder, service = Recorder(), await open_local(settings)
    service.chain.stages = recorder.watched(service.chain.stages)
    try:
        for query in BUILT_IN[:: len(BUILT_IN) // (2 * _QUERIES)]:
            await service.search(RequestContext(ACCOUNT), SearchMemoryRequest(query=query, top_k=_TOP_K))
    finally:
        await service.close()
    return recorder, sorted(recorder.plain())[:_QUERIES]


async def _measure(
    graphs: Mapping[str, Settings],
    recorder: "Recorder",
    queries: list[str],
    records: int,
    rounds: int,
    requests: int,
) -> "Report":
    from deployments.cli.bench_targets import in_process, over_http  # noqa: PLC0415
    from deployments.cli.bench_watch import LocalWatch, Meter  # noqa: PLC0415
    from deployments.identity.opening import local_keys  # noqa: PLC0415
    from deployments.overhead.report import CHAIN, Report, figures  # noqa: PLC0415

    settings = graphs[FULL]
    async with local_keys(settings) as keys:
        token, _ = await keys.create(ACCOUNT)
    urls = {name: its.url for name, its in graphs.items()}
    urls[PROXIED] = f"http://{settings.server.host}:{settings.server.port}/{_APPS[FULL]}"
    chain = in_process(settings, token, _TOP_K, LocalWatch(Meter(lambda: ())), queries[0])
    cpu = {CHAIN: _cpu_of_this} | {name: _cpu_of(_APPS[name]) for name in urls}
    found: list[Figures] = []
    async with AsyncExitStack() as stack:
        asks: dict[str, Ask] = {CHAIN: await stack.enter_async_context(chain)}
        for name, url in urls.items():
            asks[name] = await stack.enter_async_context(over_http(url, token, max(_CLIENTS), _TOP_K, queries[0]))
        for clients in _CLIENTS:
            bursts: dict[str, list[Burst]] = {name: [] for name in asks}
            order = deque(asks)
            for number in range(rounds + 1):
                for name in order:
                    burst = await _burst(asks[name], queries, clients, requests, cpu[name])
                    if number:  # The first round warms up.
                        bursts[name].append(burst)
                order.rotate()
            found += [figures(name, clients, each, bursts[CHAIN]) for name, each in bursts.items()]
    return Report(len(queries), records, tuple(found), recorder.sizes())


async def _burst(
    ask: Ask, queries: Sequence[str], clients: int, requests: int, cpu: Callable[[], Mapping[str, float]]
) -> "Burst":
    """So many requests from so many clients; each sends its next one when it has an answer."""
    from deployments.overhead.report import Burst  # noqa: PLC0415

    clock, numbers, ms, lacking = time.perf_counter, iter(range(requests)), [], 0

    async def client() -> None:
        nonlocal lacking
        for number in numbers:
            started = clock()
            reply = await ask(queries[number % len(queries)])
            ms.append((clock() - started) * 1000)
            lacking += reply.code != OK or bool(reply.degraded)

    before, started = cpu(), clock()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    seconds, after = clock() - started, cpu()
    return Burst(ms, seconds, {name: after[name] - before.get(name, 0.0) for name in after}, lacking)


def _cpu_of_this() -> dict[str, float]:
    return {"this process": time.process_time()}


def _cpu_of(app: str) -> Callable[[], dict[str, float]]:
    """CPU seconds by deployment of an application, and of Serve's proxies."""
    from deployments.cli.bench_watch import name_of  # noqa: PLC0415

    found: list[tuple[str, psutil.Process]] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if os.getsid(process.pid) != os.getsid(0):
                continue
            title = (process.cmdline() or [""])[0]
            if title.startswith((f"ray::ServeReplica:{app}:", "ray::ProxyActor")):
                found.append((name_of(title), process))

    def cpu() -> dict[str, float]:
        total: dict[str, float] = {}
        for name, process in found:
            with suppress(psutil.Error):
                used = process.cpu_times()
                total[name] = total.get(name, 0.0) + used.user + used.system
        return total

    return cpu


if __name__ == "__main__":
    main()
