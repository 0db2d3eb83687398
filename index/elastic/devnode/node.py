"""One node: its settings, its process, its log."""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml

from contracts.errors import ConfigError

HOST = "127.0.0.1"
SMALLEST_HEAP_MB = 256
# Start times are known in clock ticks of 10 ms.
_SAME_START = 0.05
_KILL_PATIENCE_S = 10.0

_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n%throwable{short.message}
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
# The jars come without native libraries; vectors then use the JDK's SIMD, compression Java.
logger.native.name = org.elasticsearch.nativeaccess
logger.native.level = off
"""


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster and the process it had last.

    Args:
        name: Also its folder's name.
        http_port: Where clients ask.
        transport_port: Where the other nodes ask.
        pid: 0 before it was ever started.
        started: When the process started, seconds since the epoch; tells it from a later one of the same id.
    """

    name: str
    http_port: int
    transport_port: int
    pid: int = 0
    started: float = 0.0

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://{HOST}:{self.http_port}"

    def process(self) -> psutil.Process | None:
        """Its living process, or ``None``."""
        with suppress(psutil.Error):
            found = psutil.Process(self.pid) if self.pid else None
            if found and abs(found.create_time() - self.started) < _SAME_START:
                # A killed process is a zombie at once, but holds its ports until its last thread is gone.
                ended = found.status() == psutil.STATUS_ZOMBIE and found.num_threads() <= 1
                return None if ended else found
        return None

    def send(self, number: int) -> None:
        """Send a signal to its process, if it lives."""
        with suppress(psutil.Error):
            if process := self.process():
                process.send_signal(number)


def heap_size(text: str) -> str:
    """A heap size as Java takes it.

    Args:
        text: A number with ``m`` or ``g``, at least 256m.

    Raises:
        ConfigError: It is none, or too small for a node to start.
    """
    found = re.fullmatch(r"([1-9]\d{0,5})([mg])", text.strip().lower())
    if not found or int(found[1]) * (1024 if found[2] == "g" else 1) < SMALLEST_HEAP_MB:
        raise ConfigError(
            f"{text!r} is no heap size.",
            field="heap",
            remedy=f"Give a number with m or g, at least {SMALLEST_HEAP_MB}m; for instance 512m or 1g.",
        )
    return found[0]


def settings(
    node: Node, peers: Sequence[Node], folder: Path, *, bootstrap: bool, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """What ``elasticsearch.yml`` says.

    Args:
        node: The node it is for.
        peers: All nodes of the cluster, this one among them.
        folder: Of the node; data and logs go below.
        bootstrap: Whether the cluster has never been formed; only then may the nodes elect a master by themselves.
        extra: Further settings; they win over these.
    """
    several = len(peers) > 1
    discovery: dict[str, Any] = {"discovery.type": "single-node"}
    if several:
        discovery = {"discovery.seed_hosts": [f"{HOST}:{peer.transport_port}" for peer in peers]}
    if several and bootstrap:
        discovery["cluster.initial_master_nodes"] = [peer.name for peer in peers]
    return {
        "cluster.name": "strata-dev",
        "node.name": node.name,
        "network.host": HOST,
        "http.port": node.http_port,
        "transport.port": node.transport_port,
        "path.data": str(folder / "data"),
        "path.logs": str(folder / "logs"),
        # A developer's disk is often nearly full, and a node that stops taking writes for it would be a riddle.
        "cluster.routing.allocation.disk.threshold_enabled": False,
        **discovery,
        **extra,
    }


def configure(folder: Path, values: Mapping[str, Any]) -> Path:
    """Write a node's configuration and return its folder."""
    config = folder / "config"
    for part in (config, folder / "data", folder / "logs"):
        part.mkdir(parents=True, exist_ok=True)
    (config / "elasticsearch.yml").write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
    (config / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
    return config


def log_file(folder: Path) -> Path:
    """Where a node's output goes."""
    return folder / "logs" / "node.log"


def launch(
    node: Node, command: Sequence[str], folder: Path, *, attached: bool
) -> "tuple[Node, subprocess.Popen[bytes]]":
    """Start a node's process in a session of its own, so that the terminal's Ctrl-C does not reach it.

    Args:
        node: What to start.
        command: Program and arguments.
        folder: Of the node; its log begins anew.
        attached: Whether its standard input ends with this process.

    Returns:
        The node with its process, and the process; an attached node ends when it is forgotten.
    """
    with log_file(folder).open("wb") as output:
        child = subprocess.Popen(  # noqa: S603 - a JDK of this machine and our own launcher
            command,
            cwd=folder,
            stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    started = psutil.Process(child.pid).create_time()
    return msgspec.structs.replace(node, pid=child.pid, started=started), child


def stop(nodes: Iterable[Node], grace: float) -> None:
    """Stop nodes side by side and wait until their processes are gone.

    Args:
        nodes: Those that are gone already, or whose id another process has by now, are left alone.
        grace: Seconds to close in order; whatever lives then is killed.

    Raises:
        ConfigError: A process survived even that.
    """
    living = [process for node in nodes if (process := node.process())]
    for process in living:
        with suppress(psutil.Error):
            process.terminate()
            process.resume()  # a paused process acts on no other signal
    _, living = psutil.wait_procs(living, timeout=grace)
    for process in living:
        with suppress(psutil.Error):
            process.kill()
    _, living = psutil.wait_procs(living, timeout=_KILL_PATIENCE_S)
    if living:
        ids = " ".join(str(process.pid) for process in living)
        raise ConfigError(f"Processes {ids} can't be stopped.", remedy=f"kill -9 {ids}")


def last_error(folder: Path) -> str:
    """The last line of a node's log that tells of an error, or its last line; empty when there is none."""
    try:
        lines = log_file(folder).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", "WARNING:", "Caused by:"))]
    errors = [line for line in said if re.search(r"\[(ERROR|FATAL)\s*\]|^Error|OutOfMemoryError", line)]
    return (errors or said or [""])[-1]
