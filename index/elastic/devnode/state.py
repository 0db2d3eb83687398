"""What is known of a cluster between commands: ``cluster.json`` in its folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from contracts.errors import ConfigError
from index.elastic.devnode.node import Node


class State(msgspec.Struct, frozen=True):
    """The cluster of a folder.

    Args:
        version: Of Elasticsearch, at the last start.
        heap: Of each node, at the last start.
        nodes: All nodes, running or not.
        formed: Whether they ever were a cluster; from then on they find their master in what they remember of it.
    """

    version: str
    heap: str
    nodes: tuple[Node, ...]
    formed: bool = False

    def having(self, node: Node) -> "State":
        """The state with a node in the place of the one of the same name."""
        return msgspec.structs.replace(self, nodes=tuple(node if n.name == node.name else n for n in self.nodes))

    def living(self) -> list[Node]:
        """The nodes that run."""
        return [node for node in self.nodes if node.process()]


class StateFile:
    """The state on disk.

    Args:
        folder: Of the cluster; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "cluster.json"

    def read(self) -> State | None:
        """The state; ``None`` where no cluster was ever started."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=State)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, state: State) -> None:
        """Replace the state, whole or not at all."""
        with NamedTemporaryFile(dir=self.folder, prefix=".cluster", delete=False) as file:
            file.write(msgspec.json.encode(state))
        Path(file.name).replace(self._path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block no other process starts or stops nodes of this folder; they wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def folder_of(data_dir: Path) -> Path:
    """Where the development cluster of a data folder lies."""
    return data_dir / "elasticsearch"


def discover(data_dir: Path) -> list[str]:
    """Where the running development cluster of a data folder answers.

    Args:
        data_dir: The data folder of the settings.

    Returns:
        The HTTP URL of every node, those of nodes that are down at the moment too.

    Raises:
        ConfigError: None of its nodes runs.
    """
    state = StateFile(folder_of(data_dir)).read()
    if not state or not state.living():
        raise ConfigError(
            f"No development Elasticsearch runs for {data_dir}.", remedy="Start one: strata es start --detach"
        )
    return [node.url for node in state.nodes]
