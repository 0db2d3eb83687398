"""``strata calibrate``: what a model's scores say about relevance, for the threshold of corpora."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

if TYPE_CHECKING:
    from deployments.settings import Settings
    from evaluation.calibrate import CalibrationReport
    from models.config import EmbedderModelConfig


def calibrate(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders with corpus.jsonl, queries.jsonl and qrels.tsv.", show_default=False)
    ],
    embedder: Annotated[
        str | None,
        typer.Option(help="A model's name; keyword for searches without vectors. By default that of the settings."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Queries of each set, spread over all of it.")] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="What is told of; by default corpora.retrieve.threshold.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Fit a model's curve from scores to relevance on judged queries, and print the settings to paste.

    Take sets of the kind and language that the model is to search.
    """
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    least = settings.corpora.retrieve.threshold if threshold is None else threshold
    report = asyncio.run(_calibrate(settings, folders, embedder, limit, least))
    if as_json:
        print(render.as_json(report))
    else:
        Console().print(_shown(report))


async def _calibrate(
    settings: "Settings", folders: Sequence[Path], name: str | None, limit: int | None, threshold: float
) -> "CalibrationReport":
    from corpora.rag.calibration import KEYWORD  # noqa: PLC0415
    from deployments.cli.eval_folders import parts  # noqa: PLC0415
    from deployments.cli.progress import counters  # noqa: PLC0415
    from evaluation import calibrate as fitting  # noqa: PLC0415
    from evaluation.datasets import load  # noqa: PLC0415
    from evaluation.runner import prepared  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    console = Console(stderr=True)
    datasets = [(folder, load(folder, limit)) for folder in folders]
    with console.status("Loading the model …") as status:
        model = load_embedder(_model(settings, name), status.update)
    judged = []
    for folder, dataset in datasets:
        with counters(console) as progress:
            work = settings.data_dir / "eval"
            async with prepared(folder, dataset, model, parts(settings), work, progress) as ready:
                weights, keyword = settings.scoring.weights, name == KEYWORD
                judged.append(await fitting.judge(dataset, ready.setup, weights, progress, keyword=keyword))
    return fitting.report(KEYWORD if name == KEYWORD else model.model.name, judged, threshold)


def _model(settings: "Settings", name: str | None) -> "EmbedderModelConfig":
    """The model to embed with; searches without vectors need an index all the same, with the cheapest ones."""
    from corpora.rag.calibration import KEYWORD  # noqa: PLC0415
    from models.config import EmbedderModelConfig  # noqa: PLC0415
    from models.deterministic import NAME  # noqa: PLC0415

    if name in {KEYWORD, NAME}:
        return EmbedderModelConfig(name=NAME, backend="deterministic", dimensions=64 if name == KEYWORD else None)
    return common.embedder_config(settings, name)


def _shown(report: "CalibrationReport") -> RenderableType:
    from deployments.cli import render  # noqa: PLC0415

    rows = (
        (
            each.dataset,
            f"{each.relevant:,}",
            f"{each.relevant_kept:.1%}",
            f"{each.irrelevant:,}",
            f"{1 - each.irrelevant_kept:.1%}",
        )
        for each in report.sets
    )
    columns = ("", "relevant hits", f"kept at {report.threshold:g}", "irrelevant hits", "dropped")
    lines = f"corpora:\n  calibrations:\n    {report.model}: {{slope: {report.slope:g}, midpoint: {report.midpoint:g}}}"
    return Group(Text(report.model, "bold"), render.table(columns, rows), Text("For the settings:", "dim"), Text(lines))
