"""The process behind ``strata faults``: a graph of its own with faults, and the matrix made on it.

It writes a row of the matrix as a line of JSON to a file as soon as it has it, and ends with exit code 0 when it has
them all.
"""

import argparse
import asyncio
import json
import os
import threading
from pathlib import Path

import httpx
import msgspec

from contracts.errors import StrataError
from deployments.environment import Environment
from deployments.server import stop_at_end_of_input, stop_on_signals
from deployments.settings import Settings, parse, resolved

ACCOUNT = "faults"
# Where the rows are, in the folder of the run.
ROWS = "rows.jsonl"
# The data: a package that every Python has, small and documented. And what finds three of its functions at once.
_PACKAGE = Path(json.__file__).parent
_QUERY = "how to decode a JSON document"
# The graph itself answers within seconds; this is for a machine that stands still.
_CLIENT_S = 60.0


def main() -> None:
    """Make the matrix."""
    parser = argparse.ArgumentParser(prog="python -m deployments.faults.run")
    parser.add_argument("--folder", type=Path, required=True, help="an empty one, for everything")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    threading.Thread(target=stop_at_end_of_input, args=[arguments.folder], daemon=True).start()
    stop_on_signals()
    run(arguments.folder, arguments.port)


def run(folder: Path, port: int) -> None:
    """Start a graph with faults, make the matrix on it, and stop it."""
    raw = {"data_dir": str(folder / "data"), "server": {"port": port}, "embedder": {"backend": "deterministic"}}
    settings = resolved(parse(raw), Environment())
    # Serve reads its switches when it is imported.
    os.environ.update(settings.ray.environment)
    from deployments import graph  # noqa: PLC0415
    from deployments.faults.probe import tuned  # noqa: PLC0415
    from deployments.faults.replica import faulty  # noqa: PLC0415

    settings = tuned(settings)
    try:
        graph.start(settings)
        asyncio.run(_ingest(settings))
        graph.deploy(settings, variant=faulty)
        stop_on_signals()  # Ray puts handlers of its own in place.
        asyncio.run(_make(settings, folder / ROWS))
    finally:
        graph.shutdown(settings)


async def _ingest(settings: Settings) -> None:
    from corpora.context.python_library import PythonLibrarySource  # noqa: PLC0415
    from deployments.backends import open_writer  # noqa: PLC0415
    from index.ingest import Ingest  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    index = await open_writer(settings.data_dir, settings.index)
    try:
        ingest = Ingest(index, index, load_embedder(settings.embedder), settings.ingest)
        report = await ingest.run(ACCOUNT, PythonLibrarySource(_PACKAGE))
    finally:
        await index.close()
    if not report.added:
        raise StrataError("The data of the fault matrix could not be ingested.")


async def _make(settings: Settings, path: Path) -> None:
    from deployments.faults.matrix import FAULTY_STAGES  # noqa: PLC0415
    from deployments.faults.probe import Matrix  # noqa: PLC0415
    from deployments.faults.replica import Switches  # noqa: PLC0415
    from deployments.graph import APP  # noqa: PLC0415
    from deployments.identity.opening import local_keys  # noqa: PLC0415

    async with local_keys(settings) as keys:
        token, _ = await keys.create(ACCOUNT)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=settings.url, headers=headers, timeout=_CLIENT_S) as client:
        matrix = Matrix(client, Switches(APP, FAULTY_STAGES), settings, _QUERY)
        with path.open("ab", buffering=0) as file:
            async for row in matrix.rows():
                file.write(msgspec.json.encode(row) + b"\n")


if __name__ == "__main__":
    main()
