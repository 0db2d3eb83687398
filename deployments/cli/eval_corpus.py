"""``strata eval corpus``: what callers of a corpus get, on test collections."""

from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from deployments.cli import common
from deployments.cli.common import ConfigOption
from deployments.cli.eval_folders import (
    EmbedderOption,
    FoldersArgument,
    FreshOption,
    JsonFileOption,
    LimitOption,
    measured,
)

if TYPE_CHECKING:
    from evaluation.corpora import CorpusReport


def corpus(
    folders: FoldersArgument,
    embedder: EmbedderOption = "auto",
    limit: LimitOption = None,
    fresh: FreshOption = False,
    json_out: JsonFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Measure both paths of a corpus, with and without the threshold, and its cache.

    A set with conversations goes through the memory corpus, any other through the web corpus.
    """
    from evaluation.corpora import evaluate_corpus  # noqa: PLC0415

    settings = common.load_settings(config)
    measure = partial(evaluate_corpus, fresh=fresh, config=settings.corpora)
    measured(settings, folders, embedder, limit, json_out, measure, _table)


def _table(report: "CorpusReport") -> RenderableType:
    from deployments.cli import render  # noqa: PLC0415

    title = (
        f"{report.dataset} through {report.corpus}: {report.queries:,} queries, {report.documents:,} documents, "
        f"{report.model}; ingest {report.ingest_s:.0f} s; a miss {report.miss_ms:.1f} ms, a cache hit "
        f"{report.hit_ms:.1f} ms"
    )
    rows = (
        (
            column.path,
            f"{column.threshold:g}",
            f"{column.quality.ndcg:.3f}",
            f"{column.quality.recall:.3f}",
            f"{column.hits:.1f}",
        )
        for column in report.columns
    )
    return Group(Text(title, "bold"), render.table(("path", "threshold", "nDCG@10", "R@10", "hits"), rows))
