"""``strata faults``: what a caller gets while a stage raises, hangs, is slow, is killed, answers garbage, is full."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from contracts.errors import StrataError
from deployments.cli.common import JsonOption

if TYPE_CHECKING:
    from deployments.faults.matrix import Row
    from deployments.lifecycle import Run

_UNEXPECTED = 1
_POLL_S = 0.2


def faults(as_json: JsonOption = False) -> None:
    """Start a graph of its own, let each stage fail in every way, and show what callers get; takes some minutes.

    It needs no model and touches no data; the exit code is 1 when something is not as it should be.
    """
    from deployments.cli import render  # noqa: PLC0415
    from deployments.cli.service import stop, stopping_on_sigterm  # noqa: PLC0415
    from deployments.faults.matrix import EXPECTATIONS, table  # noqa: PLC0415
    from deployments.lifecycle import Service, free_port  # noqa: PLC0415

    rows: list[Row] = []
    with TemporaryDirectory(prefix="strata-faults-") as name, stopping_on_sigterm():
        service, port = Service(Path(name)), free_port()
        command = [sys.executable, "-m", "deployments.faults.run", "--folder", name, "--port", str(port)]
        run = service.start(command, url=f"http://127.0.0.1:{port}", config="", detach=False)
        try:
            with Console(stderr=True).status("Starting a graph …") as status:
                for row in rows_of(run, Path(name)):
                    rows.append(row)
                    status.update(f"{len(rows)} of {len(EXPECTATIONS)}: {row.stage} {row.fault}")
            if len(rows) < len(EXPECTATIONS):
                raise StrataError(f"The run stopped early.\n{run.tail()}")
        finally:
            stop(service, run)
    if as_json:
        print(render.as_json(rows))
    else:
        print(*table(rows), sep="\n")
    if any(row.problems for row in rows):
        raise typer.Exit(_UNEXPECTED)


def rows_of(run: "Run", folder: Path) -> "Iterator[Row]":
    """The rows as they come, until the run ends."""
    import msgspec  # noqa: PLC0415

    from deployments.faults.matrix import Row  # noqa: PLC0415
    from deployments.faults.run import ROWS  # noqa: PLC0415

    path, seen, alive = folder / ROWS, 0, True
    while alive:
        alive = run.is_alive()  # before the last look at the file
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        for line in whole[seen:]:
            yield msgspec.json.decode(line, type=Row)
        seen = len(whole)
        time.sleep(_POLL_S)
