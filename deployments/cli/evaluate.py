"""``strata eval``: quality on test collections, stage by stage; the modules ``eval_*`` measure the rest."""

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from deployments.cli import common
from deployments.cli.common import ConfigOption
from deployments.cli.eval_corpus import corpus
from deployments.cli.eval_cost import cost
from deployments.cli.eval_folders import (
    EmbedderOption,
    FoldersArgument,
    FreshOption,
    JsonFileOption,
    LimitOption,
    measured,
)
from deployments.cli.eval_growth import growth
from deployments.cli.eval_index import index
from deployments.cli.groups import DefaultCommand

if TYPE_CHECKING:
    from evaluation.runner import Report

_MB = 1e6
_QUALITY = "quality"


class QualityFirst(DefaultCommand):
    """``strata eval FOLDER…`` is ``strata eval quality FOLDER…``."""

    command = _QUALITY


app = typer.Typer(cls=QualityFirst, help="Measure stages, corpora or the index.", no_args_is_help=True)
app.command("index")(index)
app.command("corpus")(corpus)
app.command("growth")(growth)
app.command("cost")(cost)


class Backend(StrEnum):
    """Where the documents are indexed."""

    EMBEDDED = "embedded"


@app.command(_QUALITY)
def evaluate(
    folders: FoldersArgument,
    backend: Annotated[Backend, typer.Option(help="Index under test.")] = Backend.EMBEDDED,
    embedder: EmbedderOption = "auto",
    limit: LimitOption = None,
    fresh: FreshOption = False,
    json_out: JsonFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Measure nDCG@10 and recall@10 of BM25, dense, fused, + expansion and + rerank.

    A set whose lines name a conversation is searched within the conversation of each query.
    """
    from evaluation import runner  # noqa: PLC0415

    settings = common.load_settings(config)
    measured(settings, folders, embedder, limit, json_out, partial(runner.evaluate, fresh=fresh), _table)


def _table(report: "Report") -> RenderableType:
    from deployments.cli import render  # noqa: PLC0415

    title = (
        f"{report.dataset}: {report.queries:,} queries, {report.documents:,} documents, {report.nodes:,} nodes, "
        f"{report.model}; ingest {report.ingest_s:.0f} s, search {report.search_s:.0f} s, "
        f"{report.index_bytes / _MB:.0f} MB"
    )
    rows = (
        (column.name, f"{column.quality.ndcg:.3f}", f"{column.quality.recall:.3f}", f"{column.ms:.1f}")
        for column in report.columns
    )
    return Group(Text(title, "bold"), render.table(("", "nDCG@10", "R@10", "ms a query"), rows))
