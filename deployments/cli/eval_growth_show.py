"""How growth looks on a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from contracts.trace import STAGES
from deployments.cli import render
from evaluation.growth.grid import Measured, Point, Report

_MB = 1e6


def line(each: Measured) -> str:
    """A point in a line."""
    forest, whole = each.point.forest, each.search.total
    return (
        f"{each.backend}, {forest.records:,} records, {forest.tenants:,} tenants, fan-out {forest.fan_out}, "
        f"depth {forest.depth}: {each.ingest.rows / each.ingest.put_s:,.0f} nodes/s, "
        f"P50 {whole.p50_ms:.1f} ms, P95 {whole.p95_ms:.1f} ms, {each.search.rss_mb:,.0f} MB"
    )


def tables(report: Report) -> RenderableType:
    """All points: sizes and whole searches, then the stages."""
    first = report.measured[0]
    base, count = first.point.forest, first.search.total.count
    title = (
        f"Base: {base.records:,} records, {base.tenants:,} tenants, fan-out {base.fan_out}, depth {base.depth}; "
        f"{base.dimensions} dimensions, seed {base.seed}. {count} searches one at a time behind each figure, "
        "10 hits wanted, without the embedder's model"
    )
    parts: list[RenderableType] = [Text(title, "bold"), _sizes(report.measured), Text()]
    parts += [Text("P50 · P95 of each stage, ms", "bold"), _stages(report.measured)]
    parts += [
        Text(f"⚠ {line(each)}: {each.search.degraded} of {each.search.total.count} answers lacked something.", "yellow")
        for each in report.measured
        if each.search.degraded
    ]
    return Group(*parts)


def _sizes(measured: Iterable[Measured]) -> RenderableType:
    columns = ("", "index", "nodes/s", "opt. s", "disk MB", "P50 ms", "P95", "CPU ms", "hits", "MB", "nodes MB")
    return render.table(columns, (_cells(each) for each in measured))


def _cells(each: Measured) -> Sequence[str]:
    ingest, search = each.ingest, each.search
    resident = [node.rss_mb for node in search.nodes if node.rss_mb is not None]
    return (
        _place(each.point),
        each.backend,
        f"{ingest.rows / ingest.put_s:,.0f}",
        f"{ingest.optimize_s:.1f}",
        f"{ingest.bytes / _MB:,.1f}",
        f"{search.total.p50_ms:.1f}",
        f"{search.total.p95_ms:.1f}",
        f"{sum(search.cpu_ms().values()):.1f}",
        f"{search.hits:.1f}",
        f"{search.rss_mb:,.0f}",
        f"{sum(resident):,.0f}" if resident else "",
    )


def _stages(measured: Iterable[Measured]) -> RenderableType:
    rows = (
        (
            _place(each.point),
            each.backend,
            *(f"{stage.times.p50_ms:.1f} · {stage.times.p95_ms:.1f}" for stage in each.search.stages.values()),
        )
        for each in measured
    )
    return render.table(("", "index", *STAGES), rows)


def _place(point: Point) -> str:
    """The dimension that is varied, with its value; ``base`` where none is."""
    value = getattr(point.forest, point.varied, None)
    return point.varied if value is None else f"{point.varied.replace('_', '-')} {value:,}"
