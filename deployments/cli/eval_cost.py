"""``strata eval cost``: what a million searches cost, from the figures of ``strata eval growth``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from contracts.errors import ConfigError
from deployments.cli import render
from deployments.cli.eval_index import Backend

if TYPE_CHECKING:
    from evaluation.growth.cost import Cost, Nodes, Work
    from evaluation.growth.grid import Measured, Report

_BYTES_PER_GB = 1e9
_MILLION = 1_000_000
_REST = "rest"


class Estimate(msgspec.Struct, frozen=True):
    """A cluster and what it comes to, for one backend."""

    backend: str
    measured_records: int
    work: "Work"
    nodes: "Nodes"
    cost: "Cost"


def cost(
    figures: Annotated[Path, typer.Argument(help="JSON of strata eval growth.", exists=True, dir_okay=False)],
    core_hour: Annotated[
        float, typer.Option(min=0, help="What you pay for a core an hour, with its share of memory and disk.")
    ],
    nodes: Annotated[list[int], typer.Option(min=1, help="Nodes of the cluster; several, one after the other.")],
    cores: Annotated[float, typer.Option(min=0.1, help="Of a node.")] = 8,
    memory_gb: Annotated[float, typer.Option("--memory-gb", min=0.1, help="Of a node, for the index.")] = 32,
    utilisation: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the cores kept busy; below that at saturation.")
    ] = 0.5,
    copies: Annotated[int, typer.Option(min=1, help="Of the index.")] = 1,
    spare: Annotated[int, typer.Option(min=0, help="Nodes that may be lost without a search too many.")] = 0,
    records: Annotated[int | None, typer.Option(min=1, help="In the index; by default as many as measured.")] = None,
    rest_cpu_ms: Annotated[
        float, typer.Option(min=0, help="CPU a search of what was not measured: HTTP, hops between stages, the model.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Price a million searches, by part, for clusters of N nodes: docs/performance.md has the calculation.

    CPU and memory are those of the point with the most records that was measured.
    """
    from evaluation.growth.cost import Nodes, Work  # noqa: PLC0415
    from evaluation.growth.cost import cost as priced  # noqa: PLC0415

    found = []
    for backend, each in _read(figures).largest().items():
        held = each.point.forest.records
        rest = {_REST: rest_cpu_ms} if rest_cpu_ms else {}
        # Every process that searches the embedded index has the whole of it beside it.
        split = backend != Backend.EMBEDDED
        work = Work(each.search.cpu_ms() | rest, records or held, _gb_per_million(each), copies, split)
        for count in nodes:
            cluster = Nodes(count, cores, memory_gb, core_hour, utilisation, spare)
            found.append(Estimate(backend, held, work, cluster, priced(work, cluster)))
    if as_json:
        print(render.as_json(found))
    else:
        Console(highlight=False).print(_shown(found))


def _read(path: Path) -> "Report":
    from evaluation.growth.grid import Report  # noqa: PLC0415

    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.MsgspecError:
        report = Report((), left=0)
    if not report.measured:
        raise ConfigError(
            f"{path} holds no figures of strata eval growth.",
            field="FIGURES",
            remedy="Make some: strata eval growth --json FILE",
        )
    return report


def _gb_per_million(each: "Measured") -> float:
    """What a million records take when the page cache holds all of their files."""
    return each.ingest.bytes / _BYTES_PER_GB / each.ingest.rows * _MILLION


def _shown(found: list[Estimate]) -> RenderableType:
    columns = ("index", "nodes", "searches/s", "a million cost", "records", "GB a node", "of")
    rows = (
        (
            each.backend,
            f"{each.nodes.count}",
            f"{each.cost.searches_per_second:,.0f}",
            f"{each.cost.per_million:,.2f}",
            f"{each.work.records:,}",
            Text(f"{each.cost.node_gb:.2f}", "" if each.cost.fits else "red"),
            f"{each.nodes.memory_gb:g}",
        )
        for each in found
    )
    parts: list[RenderableType] = [render.table(columns, rows), Text()]
    for each in {estimate.backend: estimate for estimate in reversed(found)}.values():
        shares = ", ".join(
            f"{name} {ms:.1f} ms ({each.cost.parts[name]:,.2f})" for name, ms in each.work.cpu_ms.items()
        )
        said = f"{each.backend}, measured with {each.measured_records:,} records, CPU a search (of the price): {shares}"
        parts.append(Text(said))
    return Group(*parts)
