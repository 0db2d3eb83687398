"""The process behind ``strata up``: deploys the graph on Ray, and takes both down again when it is told to stop.

It stops on SIGTERM or SIGINT, and with ``--attached`` also when its standard input ends: then the process that started
it is gone.
"""

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Never

import msgspec
import psutil

from contracts.errors import StrataError
from deployments.lifecycle import Service
from deployments.settings import Settings, load

# Where a status command reads how the replicas are.
GRAPH_STATE = "graph.json"
_REFRESH_S = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# How long an orphaned service gets to stop in order, and how often it is told to until it begins.
_GRACE_S = 40.0
_REPEAT_S = 1.0
_stopping = threading.Event()


class DeploymentState(msgspec.Struct, frozen=True):
    """A deployment of the graph: Serve's word for its state, and its replicas counted by theirs."""

    name: str
    status: str
    replicas: dict[str, int]


def main() -> None:
    """Serve until told to stop; exit code 1 and the reason as the last line when the graph can't be deployed."""
    parser = argparse.ArgumentParser(prog="python -m deployments.server")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--folder", type=Path, required=True, help="where its state lies")
    parser.add_argument("--attached", action="store_true")
    arguments = parser.parse_args()
    if arguments.attached:
        threading.Thread(target=stop_at_end_of_input, args=[arguments.folder], daemon=True).start()
    try:
        stop_on_signals()
        run(with_port(load(arguments.config), arguments.port), arguments.folder)
    except StrataError as error:
        sys.exit(str(error))
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"Unexpected error: {type(error).__name__}: {error}")


def run(settings: Settings, folder: Path) -> Never:
    """Deploy the graph, then keep the state file of its replicas up to date until a signal comes."""
    if settings.ray.address is None:
        # Serve reads its switches when it is imported, here and in the processes that inherit them.
        os.environ.update(settings.ray.environment)
    from deployments import graph  # noqa: PLC0415

    state = folder / GRAPH_STATE
    state.unlink(missing_ok=True)
    try:
        graph.deploy(settings)
        stop_on_signals()  # Ray puts handlers of its own in place.
        print(f"The graph is up at {settings.url}", flush=True)
        while True:
            _write(state)
            time.sleep(_REFRESH_S)
    finally:
        _stopping.set()
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        state.unlink(missing_ok=True)
        graph.shutdown(settings)


def _write(state: Path) -> None:
    from ray import serve  # noqa: PLC0415
    from ray.exceptions import RayError  # noqa: PLC0415
    from ray.serve.exceptions import RayServeException  # noqa: PLC0415

    from deployments.graph import APP  # noqa: PLC0415

    try:
        app = serve.status().applications.get(APP)
    except (RayError, RayServeException):
        return  # Serve's controller restarts by itself; the next look finds it.
    parts = [
        DeploymentState(name, part.status, {str(state): count for state, count in part.replica_states.items()})
        for name, part in (app.deployments if app else {}).items()
    ]
    fresh = state.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(parts))
    fresh.replace(state)


def with_port(settings: Settings, port: int | None) -> Settings:
    """The settings with another port."""
    if port is None:
        return settings
    return settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})


def stop_on_signals() -> None:
    """From now on SIGTERM and SIGINT end this process in order."""
    for each in _SIGNALS:
        signal.signal(each, _stop)


def _stop(number: int, frame: FrameType | None) -> Never:
    sys.exit(0)


def stop_at_end_of_input(folder: Path) -> None:
    """Wait until standard input ends, then stop this process and all of its session; for a thread.

    Args:
        folder: That of the ``Service`` that this process belongs to.
    """
    # Unbuffered: a thread inside sys.stdin keeps its lock, and the interpreter from ending.
    while os.read(0, 4096):
        pass
    end = time.monotonic() + _GRACE_S
    while time.monotonic() < end:
        # More than once: what a handler raises in the middle of Ray's start may be swallowed there.
        if not _stopping.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_REPEAT_S)
    # Nobody is left to do it for us.
    run = Service(folder).last()
    for process in run.processes() if run else ():
        if process.pid != os.getpid():
            with suppress(psutil.Error):
                process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
