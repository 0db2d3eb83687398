"""``strata eval index``: how fast and how complete the index backends are, side by side."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from deployments.cli import common, render
from deployments.cli.common import ConfigOption

if TYPE_CHECKING:
    from deployments.settings import Settings
    from evaluation.contestants import Cluster
    from evaluation.filling import Ingested
    from evaluation.index_bench import Report
    from evaluation.synthetic import Shape
    from evaluation.timed_search import Searched
    from index.elastic.config import ElasticConfig
    from index.elastic.index import ElasticIndex

_MB = 1e6


class Backend(StrEnum):
    """What can be measured."""

    EMBEDDED = "embedded"
    ELASTICSEARCH = "elasticsearch"


_ROWS = [10_000]
_BACKENDS = list(Backend)


def index(
    rows: Annotated[list[int], typer.Option(min=100, help="Records; several sizes one after the other.")] = _ROWS,
    backends: Annotated[list[Backend], typer.Option("--backend", help="Measured side by side.")] = _BACKENDS,
    dimensions: Annotated[int, typer.Option(min=2, max=4096, help="Of the vectors.")] = 384,
    accounts: Annotated[int, typer.Option(min=2, max=50, help="The first holds half of the records.")] = 50,
    queries: Annotated[int, typer.Option(min=1, help="Timed searches behind each figure.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same records.")] = 0,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file; - prints them.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Measure ingest, search and recall of index backends on synthetic records of skewed accounts.

    Elasticsearch is measured with other num_candidates and without routing too. All that is made is removed again.
    """
    from evaluation.synthetic import Shape  # noqa: PLC0415

    settings = common.load_settings(config)
    stdout = json_out is not None and str(json_out) == "-"
    reports = []
    for count in rows:
        report = asyncio.run(_bench(settings, backends, Shape(count, dimensions, accounts, seed), queries))
        reports.append(report)
        if not stdout:
            Console().print(_tables(report))
    if stdout:
        print(render.as_json(reports))
    elif json_out:
        json_out.write_text(render.as_json(reports) + "\n", encoding="utf-8")


async def _bench(settings: "Settings", backends: Sequence[Backend], shape: "Shape", queries: int) -> "Report":
    from evaluation.index_bench import Setup, bench  # noqa: PLC0415

    setup = Setup(
        embedded=settings.index.embedded if Backend.EMBEDDED in backends else None,
        cluster=cluster(settings) if Backend.ELASTICSEARCH in backends else None,
        queries=queries,
    )
    with Console(stderr=True).status("") as status:
        return await bench(shape, setup, lambda said: status.update(f"{said} …"))


def cluster(settings: "Settings") -> "Cluster":
    """The Elasticsearch cluster of the settings."""
    from deployments.backends import open_writer  # noqa: PLC0415
    from evaluation.contestants import Cluster  # noqa: PLC0415

    async def opened(config: "ElasticConfig") -> "ElasticIndex":
        chosen = settings.index.model_copy(update={"backend": "elasticsearch", "elastic": config})
        return cast("ElasticIndex", await open_writer(settings.data_dir, chosen))

    return Cluster(settings.index.elastic, opened)


def _tables(report: "Report") -> RenderableType:
    shape, trades = report.shape, report.trades
    title = (
        f"{shape.rows:,} records, {shape.dimensions} dimensions, {shape.accounts} accounts, seed {shape.seed}; "
        f"{report.queries} searches behind each figure, 100 hits wanted"
    )
    parts = [Text(title, "bold"), _ingests(report.ingests), _searches(report.searches, report.scopes)]
    if trades:
        parts += [
            Text("Elasticsearch by num_candidates, with min_candidates out of the way", "bold"),
            _searches(trades.candidates, report.scopes),
            Text("Elasticsearch with routing as in the settings, and none", "bold"),
            _ingests([trades.spread]),
            _searches(trades.routing, report.scopes, trades.shards),
        ]
    return Group(*parts)


def _ingests(ingests: Iterable["Ingested"]) -> RenderableType:
    columns = ("index", "nodes/s", "documents/s", "put s", "optimize s", "MB", "segments")
    rows = (
        (
            each.index,
            f"{each.rows / each.put_s:,.0f}",
            f"{each.documents / each.put_s:,.0f}",
            f"{each.put_s:.1f}",
            f"{each.optimize_s:.1f}",
            f"{each.bytes / _MB:.1f}",
            "" if each.segments is None else str(each.segments),
        )
        for each in ingests
    )
    return render.table(columns, rows)


def _searches(
    searches: Iterable["Searched"],
    scopes: Mapping[str, int],
    shards: Mapping[str, Mapping[str, int]] | None = None,
) -> RenderableType:
    columns = ("searched", "records", "search", "index", "p50 ms", "p95 ms", "R@10", "R@100")
    rows = (
        (
            each.scope,
            f"{scopes[each.scope]:,}",
            each.mode,
            each.index,
            f"{each.p50_ms:.1f}",
            f"{each.p95_ms:.1f}",
            *("" if found is None else f"{found:.3f}" for found in (each.recall_10, each.recall_100)),
            *([str(shards[each.index][each.scope])] if shards else []),
        )
        for each in searches
    )
    return render.table((*columns, *(["shards"] if shards else [])), rows)
