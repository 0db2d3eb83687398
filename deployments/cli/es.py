"""``strata es``: a real Elasticsearch on this machine, for development and tests."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from contracts.errors import ConfigError
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

if TYPE_CHECKING:
    from index.elastic.devnode.cluster import DevCluster, Launch

app = typer.Typer(help="A development Elasticsearch on this machine.", no_args_is_help=True)

_DOWN = 1


class Size(StrEnum):
    """How many nodes a development cluster may have."""

    ONE = "1"
    THREE = "3"


@app.command()
def start(
    nodes: Annotated[Size | None, typer.Option(help="By default as many as there is data of, else 1.")] = None,
    heap: Annotated[str, typer.Option(help="Memory of each node, for instance 512m; more keeps more vectors.")] = "1g",
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; stop it: strata es stop.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Start the nodes of the data folder and wait until they are green; their data is kept between starts."""
    from deployments.cli.service import stopping_on_sigterm  # noqa: PLC0415
    from index.elastic.devnode.cluster import DevCluster  # noqa: PLC0415

    cluster = DevCluster(common.load_settings(config).data_dir)
    console = Console(soft_wrap=True, highlight=False)
    with stopping_on_sigterm():
        with Console(stderr=True).status("Starting Elasticsearch; the first time it is fetched (40 MB) …"):
            started = cluster.start(_launch(heap, attached=not detach), int(nodes) if nodes else None)
        console.print(f"Elasticsearch {'is up' if started else 'runs already'} at [bold]{' '.join(cluster.urls)}[/]")
        if detach or not started:
            console.print("Status: [bold]strata es status[/]   stop: [bold]strata es stop[/]")
            return
        try:
            console.print("Ctrl-C stops it.")
            cluster.wait_end(lambda said: Console(stderr=True, soft_wrap=True).print(f"[yellow]{escape(said)}[/]"))
        finally:
            _stop(cluster)
    raise ConfigError("Elasticsearch stopped.", remedy=f"See the logs in {cluster.folder}")


@app.command()
def stop(config: ConfigOption = None) -> None:
    """Stop all nodes and wait until their processes are gone; the data stays."""
    from index.elastic.devnode.cluster import DevCluster  # noqa: PLC0415

    cluster = DevCluster(common.load_settings(config).data_dir)
    count = _stop(cluster)
    print(f"Stopped {count} node(s)." if count else f"No node runs (they would be in {cluster.folder}).")


@app.command()
def status(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Show health, version, heap and the nodes with their ports; exit code 1 when none runs."""
    from deployments.cli import render  # noqa: PLC0415
    from index.elastic.devnode.cluster import DevCluster  # noqa: PLC0415

    found = DevCluster(common.load_settings(config).data_dir).status()
    if as_json:
        print(render.as_json(found))
    else:
        console = Console(soft_wrap=True, highlight=False)
        state = found.health or "no answer"
        colour = state if found.health else "yellow"
        about = f"[{colour}]{state}[/]  version {found.version}, heap {found.heap}" if found.running else "[red]down[/]"
        console.print(f"Elasticsearch: {about}  {found.folder}")
        rows = (
            (node.name, node.url, str(node.transport_port), str(node.pid) if node.pid else "down")
            for node in found.nodes
        )
        if found.nodes:
            console.print(render.table(("node", "HTTP", "transport", "process"), rows))
    if not found.running:
        raise typer.Exit(_DOWN)


def _launch(heap: str, *, attached: bool) -> "Launch":
    """What to run, and on which JDK.

    Raises:
        ConfigError: There is no JDK, or the server can't be fetched.
    """
    from deployments.environment import Environment  # noqa: PLC0415
    from index.elastic.devnode import distribution, jdk  # noqa: PLC0415
    from index.elastic.devnode.cluster import Launch  # noqa: PLC0415
    from index.elastic.devnode.node import heap_size  # noqa: PLC0415

    environment, heap = Environment.read(), heap_size(heap)
    found = jdk.find(environment.java_homes)
    return Launch(distribution.provide(environment.cache_dir, found), heap, attached=attached)


def _stop(cluster: "DevCluster") -> int:
    with Console(stderr=True).status("Stopping …"):
        return cluster.stop()
