"""What ``strata status`` shows."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.text import Text

from contracts.errors import StrataError
from contracts.ports import IndexStats
from deployments.cli import common, render
from deployments.server import GRAPH_STATE, DeploymentState

if TYPE_CHECKING:
    from deployments.settings import Settings

_MB = 1e6


class Status(msgspec.Struct, frozen=True):
    """What was found.

    Args:
        running: Whether the service's process runs.
        ready: Whether it can answer searches.
        reason: Why it is not ready.
        url: Where it answers.
        pid: Its process.
        processes: How many it has in all.
        deployments: The graph, as Serve sees it.
        index: Nodes by account and kind.
        index_bytes: Size of the index on disk.
        index_reason: Why the index could not be looked at.
    """

    running: bool
    ready: bool = False
    reason: str = ""
    url: str = ""
    pid: int = 0
    processes: int = 0
    deployments: tuple[DeploymentState, ...] = ()
    index: Mapping[str, Mapping[str, int]] = {}
    index_bytes: int = 0
    index_reason: str = ""


def look(settings: "Settings") -> Status:
    """Look at the service and the index of the settings."""
    from deployments.lifecycle import Service  # noqa: PLC0415

    try:
        index, why = asyncio.run(_index(settings)), ""
    except StrataError as error:
        index, why = IndexStats({}, 0), f"{error.message} {error.remedy}".rstrip()
    found = Status(running=False, index=index.nodes, index_bytes=index.bytes, index_reason=why)
    folder = common.run_folder(settings)
    run = Service(folder).current()
    if run is None:
        last = Service(folder).last()
        left = len(last.processes()) if last else 0
        reason = f"It died and left {left} processes; strata down ends them." if left else "It is not running."
        return msgspec.structs.replace(found, reason=reason, processes=left)
    readiness = run.readiness()
    return msgspec.structs.replace(
        found,
        running=True,
        ready=bool(readiness and readiness.ready),
        reason=readiness.reason if readiness else "It does not answer (yet).",
        url=run.url,
        pid=run.pid,
        processes=len(run.processes()),
        deployments=_graph(folder),
    )


def show(status: Status, *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        print(render.as_json(status))
        return
    console = Console(soft_wrap=True, highlight=False)
    state = "[green]ready[/]" if status.ready else "[yellow]not ready[/]" if status.running else "[red]down[/]"
    where = f"  {status.url}  process {status.pid}, {status.processes} in all" if status.running else ""
    console.print(f"Service: {state}{where}")
    if status.reason:
        console.print(status.reason, markup=False)
    rows = (
        (part.name, part.status, ", ".join(f"{count} {state}" for state, count in part.replicas.items()))
        for part in status.deployments
    )
    if status.deployments:
        console.print(render.table(("deployment", "state", "replicas"), rows))
    for account, kinds in status.index.items():
        console.print(f"Index of {account}: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()))
    if status.index_reason:
        console.print(Text(f"Index: {status.index_reason}", "yellow"))
    else:
        console.print(f"Index size: {status.index_bytes / _MB:.1f} MB")


async def _index(settings: "Settings") -> IndexStats:
    from deployments.backends import open_reader  # noqa: PLC0415

    if settings.index.backend == "embedded" and not settings.index_dir.exists():
        return IndexStats({}, 0)
    index = await open_reader(settings.data_dir, settings.index)
    try:
        return await index.stats()
    finally:
        await index.close()


def _graph(folder: Path) -> tuple[DeploymentState, ...]:
    """What the service's process wrote down last; nothing while the graph is not up."""
    try:
        return msgspec.json.decode((folder / GRAPH_STATE).read_bytes(), type=tuple[DeploymentState, ...])
    except (OSError, msgspec.DecodeError):
        return ()
