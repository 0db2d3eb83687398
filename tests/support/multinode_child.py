"""The nodes of a local Ray cluster: ``python -m tests.support.multinode_child DASHBOARD_PORT CPUS``.

A process can be a driver of one cluster, and that of the tests is one of the shared cluster. Here each line on standard
input is an order; the ids of the workers that there are then are the answer, a line too.
"""

import json
import sys
from contextlib import suppress

import psutil
from ray.cluster_utils import Cluster

from deployments.lifecycle import free_port

_WORKERS = 2
_OBJECT_STORE = 80 * 2**20
_PATIENCE_S = 10


class Nodes:
    """A head without CPUs, which runs no replica, and workers.

    Args:
        dashboard: Port of the head's dashboard.
        cpus: Of a worker, in Ray's books.
    """

    def __init__(self, dashboard: int, cpus: int) -> None:
        self._cpus = cpus
        self._cluster = Cluster()
        self._cluster.add_node(
            num_cpus=0,
            include_dashboard=True,
            dashboard_port=dashboard,
            dashboard_agent_listen_port=free_port(),
            object_store_memory=_OBJECT_STORE,
        )

    def fill(self) -> None:
        """Start workers until there are as many as there should be."""
        while len(self._cluster.worker_nodes) < _WORKERS:
            self._cluster.add_node(num_cpus=self._cpus, object_store_memory=_OBJECT_STORE)

    def kill(self, worker: str) -> None:
        """End a worker as a machine ends: all its processes at once."""
        node = next(node for node in self._cluster.worker_nodes if node.node_id == worker)
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        processes = [raylet, *raylet.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # Workers come and go.
                process.kill()
        psutil.wait_procs(processes, timeout=_PATIENCE_S)
        self._cluster.remove_node(node, allow_graceful=False)

    def workers(self) -> list[str]:
        """Their ids."""
        return [node.node_id for node in self._cluster.worker_nodes]


def main(dashboard: int, cpus: int) -> None:
    """Start the nodes, then obey."""
    nodes = Nodes(dashboard, cpus)
    nodes.fill()
    print(json.dumps(nodes.workers()), flush=True)
    for line in sys.stdin:
        order, *arguments = line.split()
        getattr(nodes, order)(*arguments)
        print(json.dumps(nodes.workers()), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
