"""``strata bench``: load at fixed rates, and whether the budgets hold; overload and long load are commands beside."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deployments.cli import common
from deployments.cli.bench_common import (
    ArrivalsName,
    ArrivalsOption,
    ConnectionsOption,
    JsonFileOption,
    PatienceOption,
    QueriesOption,
    SeedOption,
    TopKOption,
    finish,
    measured,
    queries,
    target,
    whereabouts,
)
from deployments.cli.bench_overhead import overhead
from deployments.cli.bench_overload import overload, soak
from deployments.cli.common import ConfigOption, KeyOption
from deployments.cli.groups import DefaultCommand
from deployments.cli.search import InProcessOption

if TYPE_CHECKING:
    from deployments.settings import Settings
    from evaluation.load.report import Report
    from evaluation.load.run import Plan


class RatesFirst(DefaultCommand):
    """``strata bench OPTIONS`` is ``strata bench rates OPTIONS``."""

    command = "rates"


app = typer.Typer(cls=RatesFirst, help="Put load on the service, measure it, and hold limits against it.")
app.command("overload")(overload)
app.command("soak")(soak)
app.command("overhead")(overhead)


def _rates(text: str) -> list[float]:
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        rates = []
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise typer.BadParameter("write numbers above 0, for instance 5,10,20", param_hint="--rates")
    return rates


@app.command(RatesFirst.command)
def bench(
    rates: Annotated[
        str, typer.Option("--rate", "--rates", metavar="N[,N…]", help="Searches a second, a step each.")
    ] = "20",
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds of each step.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before, at the lowest rate, that do not count.")] = 5,
    queries_from: QueriesOption = None,
    arrivals: ArrivalsOption = ArrivalsName.POISSON,
    top_k: TopKOption = 10,
    connections: ConnectionsOption = 256,
    patience: PatienceOption = 10,
    seed: SeedOption = 0,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="URL of Ray's exporter, repeatable, one a node; that of a service started here is known."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw latency over load and the stages into this .svg.")] = None,
    in_process: InProcessOption = False,
    json_out: JsonFileOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Put load on the service, measure it and each stage, and hold the budgets against it; exit code 1 on a miss.

    Arrivals come at a fixed rate whatever becomes of those before, and latency counts from when a search was due.
    """
    from deployments.cli import bench_show  # noqa: PLC0415
    from evaluation.load import picture  # noqa: PLC0415
    from evaluation.load.config import SEARCH  # noqa: PLC0415
    from evaluation.load.run import Plan  # noqa: PLC0415

    settings = common.load_settings(config)
    token = common.find_key(settings, key)
    plan = Plan(
        rates=_rates(rates),
        seconds=duration,
        warm_up=warm_up,
        queries=queries(queries_from),
        arrivals=arrivals.value,
        seed=seed,
        connections=connections,
        patience=patience,
    )
    work = _in_process if in_process else _over_http
    report = measured(lambda told: work(settings, token, plan, top_k, metrics, told))
    if plot:
        picture.draw(report, settings.bench.p95_ms.get(SEARCH), plot)
    finish(report, lambda: bench_show.shown(report, settings.bench), json_out, missed=bool(report.missed))


async def _over_http(
    settings: "Settings",
    token: str,
    plan: "Plan",
    top_k: int,
    metrics: list[str] | None,
    told: Callable[[str], None],
) -> "Report":
    from deployments.cli.bench_watch import Meter, ServiceWatch, exporters  # noqa: PLC0415
    from evaluation.load.run import run  # noqa: PLC0415

    url, here = whereabouts(settings)
    found = metrics or exporters(here, url, settings.ray.metrics_port)
    watch = ServiceWatch(found, Meter(here.processes) if here else None)
    await watch.begin()
    async with target(settings, token, plan, top_k) as service:
        watch.expect(1)  # The query by which the target is known to answer.
        return await run(url, plan, service.ask, watch, settings.bench, told)


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
