"""Ports that nothing listens at."""

import random
import socket
from collections.abc import Sequence

import msgspec

from index.elastic.devnode.node import HOST, Node

USUAL = 9200
# Below the ports that systems give to outgoing connections, so that a free one stays free until the node listens.
_OTHERS = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a node could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def assign(nodes: Sequence[Node], usual: int = USUAL) -> tuple[Node, ...]:
    """Give nodes ports that are free; running nodes keep theirs.

    Args:
        nodes: Each gets the ports it had before, if it can.
        usual: Wished for by clients of the first node when it had none before; 0 for any.
    """
    running = [node for node in nodes if node.process()]
    taken = {port for node in running for port in (node.http_port, node.transport_port)}

    def free(wanted: int) -> int:
        others = random.sample(_OTHERS, len(_OTHERS))
        port = next(port for port in (wanted, *others) if port and port not in taken and is_free(port))
        taken.add(port)
        return port

    def assigned(place: int, node: Node) -> Node:
        if node in running:
            return node
        http = node.http_port or (usual if place == 0 else 0)
        return msgspec.structs.replace(node, http_port=free(http), transport_port=free(node.transport_port))

    return tuple(assigned(place, node) for place, node in enumerate(nodes))
