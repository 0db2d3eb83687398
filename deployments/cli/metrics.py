"""``strata metrics``: what there is to see, and the files that are made of it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from contracts.errors import ConfigError
from deployments.cli.common import JsonOption

app = typer.Typer(help="Metrics: what they are, their rules and dashboard.", no_args_is_help=True)

_WRONG = 1


@app.command("list")
def list_metrics(as_json: JsonOption = False) -> None:
    """Print every metric: its name for Prometheus, its kind, labels and meaning."""
    from deployments.cli import render as rendering  # noqa: PLC0415
    from deployments.monitoring.catalog import catalog  # noqa: PLC0415 - pulls in Ray

    metrics = [metric for part in catalog().values() for metric in part]
    if as_json:
        print(rendering.as_json([{"exported": metric.exported, **metric._asdict()} for metric in metrics]))
        return
    console = Console(soft_wrap=True, highlight=False)
    for metric in metrics:
        labels = f"{{{', '.join(metric.tags)}}}" if metric.tags else ""
        console.print(f"[bold]{metric.exported}[/]{labels}  {metric.kind}\n    {metric.meaning}")


@app.command()
def render(
    folder: Annotated[Path, typer.Option("--folder", help="A checkout.")] = Path(),
    write: Annotated[bool, typer.Option("--write", help="Write docs/metrics.md, the manifest, the dashboard.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say which of them differ; exit code 1 when any does.")
    ] = False,
) -> None:
    """Make docs/metrics.md, the rules as a manifest, and the dashboard."""
    from deployments.monitoring import render as rendering  # noqa: PLC0415 - pulls in Ray

    if write == check:
        raise ConfigError("--write and --check exclude one another.", field="check", remedy="Give one of them.")
    console = Console(soft_wrap=True, highlight=False)
    if write:
        changed = rendering.write(folder)
        console.print("\n".join(f"Wrote {path}" for path in changed) or "Nothing changed.", markup=False)
    elif differing := rendering.drifted(folder):
        console.print("\n".join(f"{path} is not what it is made of" for path in differing), markup=False)
        console.print("Write them anew: [bold]strata metrics render --write[/]")
        raise typer.Exit(_WRONG)
    else:
        console.print("The generated files are what they are made of.")
