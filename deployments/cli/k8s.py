"""``strata k8s``: the Serve config made of the settings, and the manifests checked."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from contracts.errors import ConfigError

app = typer.Typer(help="The graph on Kubernetes: its Serve config, its manifests.", no_args_is_help=True)

ClusterOption = Annotated[Path, typer.Option("--config", "-c", help="The settings of all overlays.")]
FolderOption = Annotated[Path, typer.Option("--folder", help="The manifests.")]
_CONFIG, _FOLDER = Path("configs/cluster.yaml"), Path("k8s")
_WRONG = 1


@app.command()
def render(
    config: ClusterOption = _CONFIG,
    overlay: Annotated[
        str | None, typer.Option(help="Lay the settings of this overlay over them: NAME of cluster.NAME.yaml.")
    ] = None,
    folder: FolderOption = _FOLDER,
    write: Annotated[bool, typer.Option("--write", help="Write the generated files of all overlays.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say which generated files differ; exit code 1 when any does.")
    ] = False,
) -> None:
    """Print the Serve config of a cluster, as `serve deploy` and a RayService take it."""
    from deployments.k8s import render as rendering  # noqa: PLC0415 - pulls in Ray

    if write and check:
        raise ConfigError("--write and --check exclude one another.", field="check", remedy="Keep one.")
    console = Console(soft_wrap=True, highlight=False)
    if write:
        changed = rendering.write(folder, config)
        console.print("\n".join(f"Wrote {path}" for path in changed) or "Nothing changed.", markup=False)
    elif check:
        if differing := rendering.drifted(folder, config):
            console.print("\n".join(f"{path} is not what the settings say" for path in differing), markup=False)
            console.print("Write them anew: [bold]strata k8s render --write[/]")
            raise typer.Exit(_WRONG)
        console.print("The generated files say what the settings say.")
    else:
        if overlay and overlay not in rendering.overlays(folder):
            known = ", ".join(rendering.overlays(folder))
            raise ConfigError(f"There is no overlay {overlay}.", field="overlay", remedy=f"Take one of: {known}.")
        print(rendering.dump(rendering.serve_config(rendering.overlaid(config, overlay))), end="")


@app.command()
def validate(
    config: ClusterOption = _CONFIG,
    folder: FolderOption = _FOLDER,
    fetch: Annotated[
        bool,
        typer.Option(
            "--fetch/--no-fetch", help="Whether KubeRay's schema may be fetched; without it, less is checked."
        ),
    ] = True,
) -> None:
    """Check every manifest against schemas, the settings, the graph, and the others; exit code 1 when any is wrong."""
    from deployments.environment import Environment  # noqa: PLC0415
    from deployments.k8s import kustomize, schemas  # noqa: PLC0415 - the packages of `make setup-all`
    from deployments.k8s.render import overlays  # noqa: PLC0415
    from deployments.k8s.validate import validate as everything  # noqa: PLC0415

    console = Console(soft_wrap=True, highlight=False)
    cache = Environment.read().cache_dir
    rayservice = schemas.rayservice_schema(cache) if fetch else None
    if not fetch:
        console.print("[yellow]RayServices are not held to KubeRay's schema (--no-fetch).[/]")
    found = everything(folder, config, schemas.Schemas(folder / "schemas.yaml", rayservice), kustomize.find(cache))
    for problem in found:
        console.print(f"[red]{escape(problem.overlay)}[/] {escape(f'{problem.manifest}: {problem.message}')}")
    if found:
        raise typer.Exit(_WRONG)
    console.print(f"Sound: {', '.join(overlays(folder))}.")
