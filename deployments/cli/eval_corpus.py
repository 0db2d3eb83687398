"""``strata eval corpus``: what callers of a corpus get, on test collections."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from deployments.cli import common
from deployments.cli.common import ConfigOption

if TYPE_CHECKING:
    from deployments.settings import Settings
    from evaluation.corpora import CorpusReport


def corpus(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders with corpus.jsonl, queries.jsonl and qrels.tsv.", show_default=False)
    ],
    embedder: Annotated[str, typer.Option(help="A model's name; auto chooses by the language of the corpus.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Queries of each set, spread over all of it.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Build the indices anew.")] = False,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file; - prints them.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Measure both paths of a corpus, with and without the threshold, and its cache.

    A set with conversations goes through the memory corpus, any other through the web corpus.
    """
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    stdout = json_out is not None and str(json_out) == "-"
    reports = []
    for folder in folders:
        report = asyncio.run(_evaluate(settings, folder, embedder, limit, fresh=fresh))
        reports.append(report)
        if not stdout:
            Console().print(_table(report))
    if stdout:
        print(render.as_json(reports))
    elif json_out:
        json_out.write_text(render.as_json(reports) + "\n", encoding="utf-8")


async def _evaluate(settings: "Settings", folder: Path, name: str, limit: int | None, *, fresh: bool) -> "CorpusReport":
    from deployments.cli.evaluate import parts  # noqa: PLC0415
    from deployments.cli.progress import counters  # noqa: PLC0415
    from evaluation.corpora import evaluate_corpus  # noqa: PLC0415
    from evaluation.datasets import load  # noqa: PLC0415
    from evaluation.runner import embedder_for  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    console = Console(stderr=True)
    dataset = load(folder, limit)
    with console.status("Loading the model …") as status:
        chosen = common.embedder_config(settings, embedder_for(dataset) if name == "auto" else name)
        model = load_embedder(chosen, status.update)
    with counters(console) as progress:
        work = settings.data_dir / "eval"
        return await evaluate_corpus(
            folder, dataset, model, parts(settings), settings.corpora, work, progress, fresh=fresh
        )


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
