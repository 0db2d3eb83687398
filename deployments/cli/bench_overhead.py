"""``strata bench overhead``: what the graph costs beside the work of its stages."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from contracts.errors import StrataError
from deployments.cli import common
from deployments.cli.bench_common import JsonFileOption, finish
from deployments.cli.common import ConfigOption

if TYPE_CHECKING:
    from deployments.overhead.report import Report


def overhead(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count; one more warms up.")] = 6,
    requests: Annotated[int, typer.Option(min=1, help="Searches of each contestant in a round.")] = 48,
    json_out: JsonFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Measure graphs of its own against the same chain in one process, searches in turn, by 1 client and by 8.

    It needs no model and touches no data; the transport, Serve's switches and the stages are those of the settings.
    """
    import msgspec  # noqa: PLC0415

    from deployments.cli.service import stop, stopping_on_sigterm  # noqa: PLC0415
    from deployments.lifecycle import Service, free_port  # noqa: PLC0415
    from deployments.overhead.report import Report  # noqa: PLC0415
    from deployments.overhead.run import REPORT  # noqa: PLC0415

    path = common.config_path(config)
    with TemporaryDirectory(prefix="strata-overhead-") as name, stopping_on_sigterm():
        service, port, folder = Service(Path(name)), free_port(), Path(name)
        command = [sys.executable, "-m", "deployments.overhead.run", "--folder", name, "--port", str(port)]
        command += ["--rounds", str(rounds), "--requests", str(requests)] + (["--config", str(path)] if path else [])
        run = service.start(command, url=f"http://127.0.0.1:{port}", config="", detach=False)
        try:
            with Console(stderr=True).status("Starting three graphs, then measuring: some minutes …"):
                service.wait_end(run)
            if not (folder / REPORT).exists():
                raise StrataError(f"The run stopped early.\n{run.tail()}")
            report = msgspec.json.decode((folder / REPORT).read_bytes(), type=Report)
        finally:
            stop(service, run)
    finish(report, lambda: shown(report), json_out, missed=False)


def shown(report: "Report") -> RenderableType:
    """The contestants side by side, and what travels between them."""
    from deployments.cli import render  # noqa: PLC0415

    columns = ("clients", "", "P50 ms", "P95", "requests/s", "over chain", "ratio", "CPU ms", "lacking")
    rows = (
        (
            *(str(each.clients), each.name, f"{each.p50_ms:.1f}", f"{each.p95_ms:.1f}", f"{each.per_s:.0f}"),
            *(f"{each.overhead_ms:+.1f}", f"{each.ratio:.2f}", f"{each.cpu_ms:.1f}", str(each.lacking)),
        )
        for each in report.figures
    )
    wire = ((name, f"{call:,}", f"{reply:,}") for name, (call, reply) in report.wire_bytes.items())
    asked = f"{report.queries} different queries, {report.figures[0].requests} searches each"
    return Group(
        Text(f"{report.records:,} records, {asked}", "bold"),
        render.table(columns, rows),
        Text(),
        render.table(("stage", "call bytes", "reply"), wire),
    )
