"""``strata eval``: quality on test collections, stage by stage; ``eval_corpus`` and ``eval_index`` measure the rest."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text
from typer.core import TyperGroup

from deployments.cli import common
from deployments.cli.common import ConfigOption
from deployments.cli.eval_corpus import corpus
from deployments.cli.eval_index import index

if TYPE_CHECKING:
    from deployments.settings import Settings
    from evaluation.runner import Parts, Report
    from models.config import EmbedderModelConfig

_MB = 1e6
_QUALITY = "quality"


class QualityFirst(TyperGroup):
    """A group in which ``strata eval FOLDER…`` is ``strata eval quality FOLDER…``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; without a command's name first, all are those of the command for folders."""
        named = not args or args[0] in {*self.commands, "--help"}
        return super().parse_args(ctx, args if named else [_QUALITY, *args])


app = typer.Typer(cls=QualityFirst, help="Measure stages, corpora or the index.", no_args_is_help=True)
app.command("index")(index)
app.command("corpus")(corpus)


class Backend(StrEnum):
    """Where the documents are indexed."""

    EMBEDDED = "embedded"


@app.command(_QUALITY)
def evaluate(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders with corpus.jsonl, queries.jsonl and qrels.tsv.", show_default=False)
    ],
    backend: Annotated[Backend, typer.Option(help="Index under test.")] = Backend.EMBEDDED,
    embedder: Annotated[str, typer.Option(help="A model's name; auto chooses by the language of the corpus.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Queries of each set, spread over all of it.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Build the indices anew.")] = False,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file; - prints them.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Measure nDCG@10 and recall@10 of BM25, dense, fused, + expansion and + rerank.

    A set whose lines name a conversation is searched within the conversation of each query.
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


async def _evaluate(settings: "Settings", folder: Path, name: str, limit: int | None, *, fresh: bool) -> "Report":
    from deployments.cli.progress import counters  # noqa: PLC0415
    from evaluation import runner  # noqa: PLC0415
    from evaluation.datasets import load  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    console = Console(stderr=True)
    dataset = load(folder, limit)
    with console.status("Loading the model …") as status:
        chosen = _model(settings, runner.embedder_for(dataset) if name == "auto" else name)
        model = load_embedder(chosen, status.update)
    with counters(console) as progress:
        work = settings.data_dir / "eval"
        return await runner.evaluate(folder, dataset, model, parts(settings), work, progress, fresh=fresh)


def _model(settings: "Settings", name: str) -> "EmbedderModelConfig":
    from models.config import EmbedderModelConfig  # noqa: PLC0415

    chosen = settings.embedder
    if name == chosen.name:
        return chosen
    # What belongs to the model of the settings (folder, pooling, prefixes …) is not this one's.
    return EmbedderModelConfig(
        name=name, cache_dir=chosen.cache_dir, threads=chosen.threads, batch_tokens=chosen.batch_tokens
    )


def parts(settings: "Settings") -> "Parts":
    """The configuration under test."""
    from evaluation.runner import Parts  # noqa: PLC0415
    from models.load import load_pair_scorer  # noqa: PLC0415

    reranker = settings.stages.reranker.config
    return Parts(
        ingest=settings.ingest,
        embedded=settings.index.embedded,
        seed_search=settings.stages.seed_search.config,
        expander=settings.stages.expander.config,
        scoring=settings.scoring,
        reranker=reranker,
        limit=settings.chain.limit,
        scorer=load_pair_scorer(settings.cross_encoder) if reranker.kind != "none" else None,
    )


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
