"""What commands of ``strata eval`` on test collections have in common."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType

from deployments.cli import common

if TYPE_CHECKING:
    from contracts.ports import Embedder
    from deployments.settings import Settings
    from evaluation.datasets import Dataset
    from evaluation.runner import Parts
    from index.ingest import Progress

Report = TypeVar("Report")
# Of a folder with its data set: measures by a model, in a work folder.
Measure = Callable[[Path, "Dataset", "Embedder", "Parts", Path, "Progress"], Awaitable[Report]]

FoldersArgument = Annotated[
    list[Path], typer.Argument(help="Folders with corpus.jsonl, queries.jsonl and qrels.tsv.", show_default=False)
]
EmbedderOption = Annotated[str, typer.Option(help="A model's name; auto chooses by the language of the corpus.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Queries of each set, spread over all of it.")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Build the indices anew.")]
JsonFileOption = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file; - prints them.")]


def measured(
    settings: "Settings",
    folders: Sequence[Path],
    embedder: str,
    limit: int | None,
    json_out: Path | None,
    measure: "Measure[Report]",
    table: Callable[[Report], RenderableType],
) -> None:
    """Measure each folder, and print a table of it at once or all of them as JSON.

    Args:
        settings: Models, and the folder under which the indices are built.
        folders: Test collections.
        embedder: Name of the model, or ``auto``.
        limit: Queries of each set; ``None`` for all.
        json_out: Where the figures go instead of on the screen; ``-`` is standard output.
        measure: Does it.
        table: Draws a report.
    """
    from deployments.cli import render  # noqa: PLC0415

    stdout = json_out is not None and str(json_out) == "-"
    reports: list[Any] = []
    for folder in folders:
        report = asyncio.run(_measured(settings, folder, embedder, limit, measure))
        reports.append(report)
        if not stdout:
            Console().print(table(report))
    if stdout:
        print(render.as_json(reports))
    elif json_out:
        json_out.write_text(render.as_json(reports) + "\n", encoding="utf-8")


async def _measured(
    settings: "Settings", folder: Path, name: str, limit: int | None, measure: "Measure[Report]"
) -> Report:
    from deployments.cli.progress import counters  # noqa: PLC0415
    from evaluation.datasets import load  # noqa: PLC0415
    from evaluation.runner import embedder_for  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    console = Console(stderr=True)
    dataset = load(folder, limit)
    with console.status("Loading the model …") as status:
        chosen = common.embedder_config(settings, embedder_for(dataset) if name == "auto" else name)
        model = load_embedder(chosen, status.update)
    with counters(console) as progress:
        return await measure(folder, dataset, model, parts(settings), settings.data_dir / "eval", progress)


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
