"""``strata up``, ``down`` and ``status``: the local service."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Never

import typer
from rich.console import Console
from rich.markup import escape

from contracts.errors import ConfigError
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

if TYPE_CHECKING:
    from deployments.lifecycle import Run, Service
    from deployments.settings import Settings

_DOWN = 1
# The graph ends what is under way and Ray its processes; twice what that takes on a busy machine.
_GRACE_S = 60.0


def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; stop it: strata down.")
    ] = False,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Instead of server.port of the settings.")] = None,
    config: ConfigOption = None,
) -> None:
    """Start the graph on a local Ray, or on the cluster of ray.address, and wait until it answers."""
    settings = common.load_settings(config)
    with stopping_on_sigterm():
        service, run = launch(settings, common.config_path(config), port, detach=detach)
        try:
            wait_up(service, run, settings)
            if detach:
                Console().print("Status: [bold]strata status[/]   stop: [bold]strata down[/]")
                return
            Console().print("Ctrl-C stops it.")
            service.wait_end(run)
        except BaseException:
            stop(service, run)
            raise
        stop(service, run)
    raise ConfigError(f"The service stopped.\n{run.tail()}", remedy=f"See {run.log}")


def down(config: ConfigOption = None) -> None:
    """Stop the local service and wait until all its processes are gone."""
    from deployments.lifecycle import Service  # noqa: PLC0415

    folder = common.run_folder(common.load_settings(config))
    service = Service(folder)
    run = service.last()
    if run is None:
        print(f"No service was started from here (its state would be in {folder}).")
        return
    count = len(run.processes())
    stop(service, run)
    print(f"Stopped the service at {run.url} ({count} processes).")


def status(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Show whether the service is ready, its replicas, and what the index holds; exit code 1 when it is down."""
    from deployments.cli.status import look, show  # noqa: PLC0415

    found = look(common.load_settings(config))
    show(found, as_json=as_json)
    if not found.running:
        raise typer.Exit(_DOWN)


def check_port(settings: "Settings", port: int | None) -> None:
    """See to it that a service can listen.

    Raises:
        ConfigError: The port is taken, and not by the service that runs here.
    """
    from deployments.lifecycle import Service, port_is_free  # noqa: PLC0415

    number = port or settings.server.port
    elsewhere = settings.ray.address is not None or Service(common.run_folder(settings)).current() is not None
    if not elsewhere and not port_is_free(settings.server.host, number):
        raise ConfigError(
            f"Port {number} is used by another program.", field="server.port", remedy="Choose one: strata up --port N"
        )


def launch(settings: "Settings", config: Path | None, port: int | None, *, detach: bool) -> "tuple[Service, Run]":
    """Start the process of the service, without waiting for it.

    Raises:
        ConfigError: A service is running already, or the port is taken.
    """
    from deployments.lifecycle import Service  # noqa: PLC0415
    from deployments.server import with_port  # noqa: PLC0415

    check_port(settings, port)
    settings, folder = with_port(settings, port), common.run_folder(settings)
    command = [sys.executable, "-m", "deployments.server", "--folder", str(folder)]
    command += ["--port", str(port)] if port else []
    command += ["--config", str(config)] if config else []
    command += [] if detach else ["--attached"]
    service = Service(folder)
    return service, service.start(command, url=settings.url, config=str(config or ""), detach=detach)


def wait_up(service: "Service", run: "Run", settings: "Settings") -> None:
    """Wait until a run answers, and say so."""
    with Console(stderr=True).status("Starting the graph …"):
        # The graph itself gives up after ready_timeout_s; Ray's own start comes before.
        readiness = service.wait_up(run, settings.ray.ready_timeout_s + _GRACE_S)
    Console().print(f"The graph is up at [bold]{run.url}[/]  (log: {run.log})", soft_wrap=True, highlight=False)
    if not readiness.ready:
        Console(stderr=True).print(f"[yellow]{escape(readiness.reason)}[/]", soft_wrap=True)


def stop(service: "Service", run: "Run") -> None:
    """Stop a run, whatever signals come meanwhile: half stopped is worse than late."""
    held = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Console(stderr=True).status("Stopping …"):
            service.stop(run, _GRACE_S)
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


@contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Within the block, SIGTERM ends it as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> Never:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
