"""``strata bench``: load at fixed rates, and whether the budgets hold."""

import asyncio
import selectors
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deployments.cli import common
from deployments.cli.common import ConfigOption, KeyOption
from deployments.cli.search import InProcessOption

if TYPE_CHECKING:
    from deployments.settings import Settings
    from evaluation.load.report import Report
    from evaluation.load.run import Plan

_MISSED = 1
# One socket each, and select() takes no more than 1024.
_MOST_CONNECTIONS = 900


class ArrivalsName(StrEnum):
    """How arrivals are spread."""

    POISSON = "poisson"
    CONSTANT = "constant"


def _rates(text: str) -> list[float]:
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        rates = []
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise typer.BadParameter("write numbers above 0, for instance 5,10,20", param_hint="--rates")
    return rates


def bench(
    rates: Annotated[
        str, typer.Option("--rate", "--rates", metavar="N[,N…]", help="Searches a second, a step each.")
    ] = "20",
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds of each step.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before, at the lowest rate, that do not count.")] = 5,
    queries: Annotated[
        Path | None,
        typer.Option(help="A folder with queries.jsonl, or such a file; by default a mix for the demo's index."),
    ] = None,
    arrivals: Annotated[
        ArrivalsName, typer.Option(help="poisson: as independent callers come; constant: evenly apart.")
    ] = ArrivalsName.POISSON,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, max=50, help="Hits wanted.")] = 10,
    connections: Annotated[int, typer.Option(min=1, max=_MOST_CONNECTIONS, help="Requests at once, at most.")] = 256,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds after which a caller gives up.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The same seed asks the same at the same moments.")] = 0,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="URL of Ray's exporter, repeatable, one a node; that of a service started here is known."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw latency over load and the stages into this .svg.")] = None,
    in_process: InProcessOption = False,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file; - prints them.")
    ] = None,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Put load on the service, measure it and each stage, and hold the budgets against it; exit code 1 on a miss.

    Arrivals come at a fixed rate whatever becomes of those before, and latency counts from when a search was due.
    """
    from deployments.cli import bench_show, render  # noqa: PLC0415
    from evaluation.load import picture  # noqa: PLC0415
    from evaluation.load import queries as asking  # noqa: PLC0415
    from evaluation.load.config import SEARCH  # noqa: PLC0415
    from evaluation.load.run import Plan  # noqa: PLC0415

    settings = common.load_settings(config)
    token = common.find_key(settings, key)
    plan = Plan(
        rates=_rates(rates),
        seconds=duration,
        warm_up=warm_up,
        queries=asking.read(queries) if queries else asking.BUILT_IN,
        arrivals=arrivals.value,
        seed=seed,
        connections=connections,
        patience=patience,
    )
    work = _in_process if in_process else _over_http
    # Timers of epoll are a millisecond late; those of select() are not.
    with (
        Console(stderr=True).status("") as status,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner,
    ):
        report = runner.run(work(settings, token, plan, top_k, metrics, lambda said: status.update(f"{said} …")))
    if plot:
        picture.draw(report, settings.bench.p95_ms.get(SEARCH), plot)
    if json_out is None or str(json_out) != "-":
        Console(highlight=False).print(bench_show.shown(report, settings.bench))
    if json_out:
        text = render.as_json(report)
        print(text) if str(json_out) == "-" else json_out.write_text(text + "\n", encoding="utf-8")
    if report.missed:
        raise typer.Exit(_MISSED)


async def _over_http(
    settings: "Settings",
    token: str,
    plan: "Plan",
    top_k: int,
    metrics: list[str] | None,
    told: Callable[[str], None],
) -> "Report":
    from deployments.cli.bench_targets import over_http  # noqa: PLC0415
    from deployments.cli.bench_watch import Meter, ServiceWatch, exporters  # noqa: PLC0415
    from deployments.lifecycle import Service  # noqa: PLC0415
    from evaluation.load.run import run  # noqa: PLC0415

    url = common.service_url(settings)
    here = Service(common.run_folder(settings)).current()
    service = here if here and here.url == url else None
    found = metrics or exporters(service, url, settings.ray.metrics_port)
    watch = ServiceWatch(found, Meter(service.processes) if service else None)
    async with over_http(url, token, plan.connections, top_k, plan.queries[0]) as ask:
        return await run(url, plan, ask, watch, settings.bench, told)


async def _in_process(
    settings: "Settings",
    token: str,
    plan: "Plan",
    top_k: int,
    metrics: list[str] | None,
    told: Callable[[str], None],
) -> "Report":
    import psutil  # noqa: PLC0415

    from deployments.cli.bench_targets import in_process  # noqa: PLC0415
    from deployments.cli.bench_watch import LocalWatch, Meter  # noqa: PLC0415
    from evaluation.load.run import run  # noqa: PLC0415

    this = psutil.Process()
    watch = LocalWatch(Meter(lambda: [this]))
    async with in_process(settings, token, top_k, watch, plan.queries[0]) as ask:
        return await run("in-process", plan, ask, watch, settings.bench, told, own_process=False)
