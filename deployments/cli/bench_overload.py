"""``strata bench overload`` and ``strata bench soak``: more load than the service can answer, and load for long."""

from collections.abc import Callable
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
    Target,
    TopKOption,
    finish,
    measured,
    queries,
    target,
)
from deployments.cli.common import ConfigOption, KeyOption

if TYPE_CHECKING:
    from evaluation.load.overload import Overload
    from evaluation.load.phases import Memory
    from evaluation.load.run import Plan
    from evaluation.load.soak import Soak

_MINUTE_S = 60.0

SaturationOption = Annotated[
    float | None, typer.Option(min=0.01, help="Searches a second that it answers at most; by default looked for.")
]
LookOption = Annotated[
    float, typer.Option("--search-duration", min=0.1, help="Seconds of each step while the saturation is looked for.")
]
FromOption = Annotated[float, typer.Option("--from", min=0.01, help="The rate at which looking for it begins.")]


def overload(
    saturation: SaturationOption = None,
    duration: Annotated[float, typer.Option(min=1, help="Seconds of each of the three phases.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before, at half load, that do not count.")] = 5,
    search_from: FromOption = 5,
    search_duration: LookOption = 10,
    queries_from: QueriesOption = None,
    arrivals: ArrivalsOption = ArrivalsName.POISSON,
    top_k: TopKOption = 10,
    connections: ConnectionsOption = 256,
    patience: PatienceOption = 10,
    seed: SeedOption = 0,
    json_out: JsonFileOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Half of what saturates the service, then twice of it, then half again; exit code 1 when it does not cope.

    What is too much must be refused at once, with Retry-After; the rest be answered as quickly as ever; and soon after
    all must be as before.
    """
    from deployments.cli import bench_overload_show as show  # noqa: PLC0415
    from evaluation.load import overload as load  # noqa: PLC0415

    settings = common.load_settings(config)
    token = common.find_key(settings, key)
    plan = _plan(search_from, duration, warm_up, queries(queries_from), arrivals, seed, connections, patience)

    async def work(told: Callable[[str], None]) -> "Overload":
        async with target(settings, token, plan, top_k) as service:
            return await load.overload(
                service.url,
                plan,
                service.ask,
                _memory(service),
                settings.bench,
                told,
                at=saturation,
                search_s=search_duration,
            )

    report = measured(work)
    finish(report, lambda: show.overload(report), json_out, missed=report.missed)


def soak(
    minutes: Annotated[float, typer.Option(min=0.05, help="How long.")] = 60,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Searches a second; by default half of the saturation.")
    ] = None,
    saturation: SaturationOption = None,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before that do not count.")] = 5,
    search_from: FromOption = 5,
    search_duration: LookOption = 10,
    queries_from: QueriesOption = None,
    arrivals: ArrivalsOption = ArrivalsName.POISSON,
    top_k: TopKOption = 10,
    connections: ConnectionsOption = 256,
    patience: PatienceOption = 10,
    seed: SeedOption = 0,
    json_out: JsonFileOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Half of what saturates the service, for long; exit code 1 when the memory of a process grows all along.

    It must run where the service does: memory is that of its processes.
    """
    import msgspec  # noqa: PLC0415

    from deployments.cli import bench_overload_show as show  # noqa: PLC0415
    from evaluation.load import overload as load  # noqa: PLC0415
    from evaluation.load import soak as long  # noqa: PLC0415

    settings = common.load_settings(config)
    token = common.find_key(settings, key)
    plan = _plan(search_from, search_duration, 0, queries(queries_from), arrivals, seed, connections, patience)

    async def work(told: Callable[[str], None]) -> "Soak":
        async with target(settings, token, plan, top_k) as service:
            half = rate or load.HALF * (
                saturation or load.most_answers(await load.find_saturation(plan, service.ask, settings.bench, told))
            )
            steady = msgspec.structs.replace(plan, rates=(half,), seconds=minutes * _MINUTE_S, warm_up=warm_up)
            return await long.soak(service.url, steady, service.ask, _memory(service), settings.bench, told)

    report = measured(work)
    finish(report, lambda: show.soak(report), json_out, missed=report.missed)


def _plan(
    search_from: float,
    seconds: float,
    warm_up: float,
    asked: tuple[str, ...],
    arrivals: ArrivalsName,
    seed: int,
    connections: int,
    patience: float,
) -> "Plan":
    from evaluation.load.run import Plan  # noqa: PLC0415

    return Plan((search_from,), seconds, warm_up, asked, arrivals.value, seed, connections, patience)


def _memory(service: Target) -> "Memory":
    from deployments.cli.bench_watch import Meter  # noqa: PLC0415

    return Meter(service.run.processes).memory if service.run else dict
