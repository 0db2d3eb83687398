"""A cluster of one or three nodes on this machine, kept in the data folder between starts.

::

    <data_dir>/elasticsearch/
        cluster.json     ports, processes and size of the cluster, running or not
        node-1/          config, data and logs of a node
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from contracts.errors import ConfigError
from index.elastic.devnode import node as processes
from index.elastic.devnode import ports
from index.elastic.devnode.distribution import VERSION, Distribution
from index.elastic.devnode.health import ask, wait_for
from index.elastic.devnode.node import Node
from index.elastic.devnode.state import State, StateFile, folder_of

SIZES = (1, 3)
_MOST_PROCESSORS = 4
_GRACE_S = 30.0


@dataclass(frozen=True)
class Launch:
    """How nodes are started.

    Args:
        distribution: What they run.
        heap: Of each node, for instance ``512m`` or ``1g``; more keeps more vectors in memory.
        attached: Whether they end with this process, however that ends.
        settings: Further lines of ``elasticsearch.yml``, for instance quicker fault detection.
        patience_s: Seconds until all nodes have to answer.
        http_port: Wished for by clients of the first node; taken if it is free. 0 for any.
    """

    distribution: Distribution
    heap: str = "1g"
    attached: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    patience_s: float = 180.0
    http_port: int = ports.USUAL


class NodeStatus(msgspec.Struct, frozen=True):
    """A node as seen now; ``pid`` is 0 while it does not run."""

    name: str
    url: str
    http_port: int
    transport_port: int
    pid: int


class Status(msgspec.Struct, frozen=True):
    """A cluster as seen now.

    Args:
        running: Whether any node runs.
        health: ``green``, ``yellow`` or ``red``, as the first node that answers says; empty when none does.
        version: Of Elasticsearch; empty before the first start.
        heap: Of each node; empty before the first start.
        folder: Where everything lies.
        nodes: Each node.
    """

    running: bool
    health: str
    version: str
    heap: str
    folder: str
    nodes: tuple[NodeStatus, ...]


class DevCluster:
    """The development cluster of a data folder.

    Args:
        data_dir: The data folder of the settings; nothing is made there before the first start.
    """

    def __init__(self, data_dir: Path) -> None:
        self.folder = folder_of(data_dir)
        self._file = StateFile(self.folder)
        self._launch: Launch | None = None
        # An attached node ends when the pipe to it is closed, and so when its process object is dropped.
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, running or not; none before the first start."""
        state = self._file.read()
        return state.nodes if state else ()

    @property
    def urls(self) -> list[str]:
        """Where the nodes answer, whether they run or not."""
        return [node.url for node in self.nodes]

    def start(self, launch: Launch, size: int | None = None) -> bool:
        """Start the nodes that do not run, and wait until every node sees the cluster green.

        Args:
            launch: How.
            size: Nodes, 1 or 3; by default as many as there is data of, else 1.

        Returns:
            Whether a node had to be started.

        Raises:
            ConfigError: The size is none or not that of the data, a node died, or they were not green in time. What
                was started here is stopped again.
        """
        heap = processes.heap_size(launch.heap)
        fresh = []
        try:
            with self._file.alone():
                state = self._prepare(size, heap, launch.http_port)
                self._launch = launch
                for node in state.nodes:
                    if not node.process():
                        state, running = self._run(node, state, launch)
                        fresh.append(running)
            self.wait_up(launch.patience_s)
        except BaseException:
            processes.stop(fresh, _GRACE_S)
            raise
        return bool(fresh)

    def wait_up(self, patience_s: float) -> None:
        """Wait until every node sees all of them and the cluster green.

        Args:
            patience_s: Seconds.

        Raises:
            ConfigError: A node is gone, with the last error of its log; or they were not green in time.
        """
        nodes = self.nodes

        def up() -> bool:
            if gone := next((node for node in nodes if not node.process()), None):
                raise ConfigError(self._obituary(gone), remedy=f"See {self._log(gone)}")
            return all((health := ask(node.url)) and health.is_up(len(nodes)) for node in nodes)

        if not wait_for(up, patience_s):
            said = {node.name: health.status if (health := ask(node.url)) else "no answer" for node in nodes}
            raise ConfigError(
                f"Elasticsearch is not green after {patience_s:.0f} s: "
                + ", ".join(f"{name} {status}" for name, status in said.items()),
                remedy=f"See {self._log(nodes[0])}",
            )
        with self._file.alone():
            if state := self._file.read():
                self._file.write(msgspec.structs.replace(state, formed=True))

    def wait_end(self, told: Callable[[str], None]) -> None:
        """Wait until no node runs.

        Args:
            told: Called with a sentence for each node that ends.
        """
        running = {process.pid: (node, process) for node in self.nodes if (process := node.process())}
        psutil.wait_procs(
            [process for _, process in running.values()],
            callback=lambda process: told(self._obituary(running[process.pid][0])),
        )

    def stop(self, grace_s: float = _GRACE_S) -> int:
        """Stop all nodes and wait until their processes are gone; the data stays.

        Args:
            grace_s: Seconds to close in order; whatever lives then is killed.

        Returns:
            How many nodes ran.
        """
        if not self.nodes:
            return 0
        with self._file.alone():
            living = [node for node in self.nodes if node.process()]
            processes.stop(living, grace_s)
            self._children.clear()
        return len(living)

    def status(self) -> Status:
        """How the cluster is."""
        state = self._file.read() or State("", "", ())
        living = state.living()
        health = next((answer.status for node in living if (answer := ask(node.url))), "")
        rows = (
            NodeStatus(node.name, node.url, node.http_port, node.transport_port, node.pid if node in living else 0)
            for node in state.nodes
        )
        return Status(bool(living), health, state.version, state.heap, str(self.folder), tuple(rows))

    def kill(self, node: int) -> None:
        """End a node as a crash would (SIGKILL), and wait until it is gone.

        Args:
            node: Its place in ``nodes`` and ``urls``, from 0; the same for the methods below.
        """
        victim = self.nodes[node]
        victim.send(signal.SIGKILL)
        processes.stop([victim], grace=0)

    def pause(self, node: int) -> None:
        """Let a node hang (SIGSTOP): its connections stay open and nothing is answered."""
        self.nodes[node].send(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        self.nodes[node].send(signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Kill a node if it lives, and start it again at the same ports; :meth:`wait_up` waits for it.

        Raises:
            ConfigError: The cluster was not started by this object.
        """
        launch = self._launched()
        self.kill(node)
        with self._file.alone():
            if state := self._file.read():
                self._run(state.nodes[node], state, launch)

    def heal(self) -> None:
        """Resume what is paused, start what is dead, and wait until every node sees the cluster green.

        Raises:
            ConfigError: As :meth:`start`; or the cluster was not started by this object.
        """
        for node in self.nodes:
            node.send(signal.SIGCONT)
        self.start(self._launched())

    def _launched(self) -> Launch:
        if self._launch is None:
            raise ConfigError("The cluster was not started by this process.", remedy="Start it first.")
        return self._launch

    def _prepare(self, size: int | None, heap: str, http_port: int) -> State:
        """The state to start from: the nodes of the data, with ports that are free now."""
        old = self._file.read()
        size = size or (len(old.nodes) if old else 1)
        if size not in SIZES:
            raise ConfigError(f"A development cluster has 1 or 3 nodes, not {size}.", field="nodes")
        if old and len(old.nodes) != size:
            raise ConfigError(
                f"The cluster in {self.folder} was made with {len(old.nodes)} node(s) and can't have {size}.",
                field="nodes",
                remedy=f"Start it with --nodes {len(old.nodes)}, or begin anew: rm -r {self.folder}",
            )
        nodes = old.nodes if old else tuple(Node(f"node-{number}", 0, 0) for number in range(1, size + 1))
        if old and old.living():
            heap = old.heap  # the rest joins what runs
        state = State(VERSION, heap, ports.assign(nodes, http_port), formed=old is not None and old.formed)
        self._file.write(state)
        return state

    def _run(self, node: Node, state: State, launch: Launch) -> tuple[State, Node]:
        """Start a node; returns the state with its process, which is also written."""
        folder = self.folder / node.name
        values = processes.settings(node, state.nodes, folder, bootstrap=not state.formed, extra=launch.settings)
        command = launch.distribution.command(
            processes.configure(folder, values),
            heap=state.heap,
            processors=min(_MOST_PROCESSORS, max(1, (os.cpu_count() or 1) // len(state.nodes))),
            attached=launch.attached,
        )
        running, self._children[node.name] = processes.launch(node, command, folder, attached=launch.attached)
        state = state.having(running)
        self._file.write(state)
        return state, running

    def _log(self, node: Node) -> Path:
        return processes.log_file(self.folder / node.name)

    def _obituary(self, node: Node) -> str:
        said = processes.last_error(self.folder / node.name)
        return f"{node.name} stopped{f': {said}' if said else '.'}"
