"""A local Ray cluster of several nodes, on which ``serve deploy`` puts the graph as it is rendered for Kubernetes.

It runs in processes of its own, with ports, folder and token of its own, all in one session by which they are ended.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import yaml

from contracts.trace import STAGES
from deployments.graph import APP
from deployments.k8s.render import dump, overlaid, serve_config
from deployments.lifecycle import Run, Service, free_port
from deployments.settings import Settings

ROOT = Path(__file__).parents[2]
# Of a worker, in Ray's books: all replicas fit on one.
WORKER_CPUS = 16
_OVERLAY = "multinode"


def overlay(folder: Path, differs: Mapping[str, Any]) -> Settings:
    """The settings of ``configs/cluster.yaml`` with others over them, as in any overlay of ``k8s/``.

    Args:
        folder: For the files.
        differs: Those of the overlay.
    """
    shutil.copy(ROOT / "configs" / "cluster.yaml", folder)
    (folder / f"cluster.{_OVERLAY}.yaml").write_text(yaml.safe_dump(differs), encoding="utf-8")
    return overlaid(folder / "cluster.yaml", _OVERLAY)


def this_machine(folder: Path, elasticsearch: str) -> dict[str, Any]:
    """Settings for a cluster on one busy machine, beside an Elasticsearch without TLS and users."""
    budgets = {stage: {"budget_ms": 20_000, "reserve_ms": 0} for stage in STAGES}
    here = {"hosts": [elasticsearch], "username": None, "ca_file": None, "request_timeout_ms": 20_000}
    return {
        "data_dir": str(folder / "data"),
        "index": {
            "elastic": {
                "prefix": f"multinode-{secrets.token_hex(4)}",
                "connection": here,
                "layout": {"shards": 1, "replicas": 0},
            }
        },
        "embedder": {"backend": "deterministic"},
        "server": {"host": "127.0.0.1", "port": free_port(), "read_timeout_ms": 20_000, "ready_timeout_ms": 20_000},
        "chain": {"timeout_ms": 60_000, "budgets": budgets},
    }


class Replica(msgspec.Struct):
    """A replica, as Serve tells of it."""

    replica_id: str
    state: str
    node_id: str | None = None
    pid: int | None = None


class Deployment(msgspec.Struct):
    """A deployment, as Serve tells of it."""

    status: str
    target_num_replicas: int
    replicas: list[Replica]

    def nodes(self) -> list[str]:
        """Where its replicas run, a node for each."""
        return sorted(each.node_id or "" for each in self.replicas if each.state == "RUNNING")

    def complete(self) -> bool:
        """Whether as many run as should, and nothing else is left of it."""
        return len(self.nodes()) == len(self.replicas) == self.target_num_replicas


class Application(msgspec.Struct):
    """The graph, as Serve tells of it."""

    status: str = "NOT_STARTED"
    message: str = ""
    deployments: dict[str, Deployment] = {}

    def complete(self) -> bool:
        """Whether it is up, with every replica."""
        return self.status == "RUNNING" and all(each.complete() for each in self.deployments.values())

    def replicas_by_node(self) -> Counter[str]:
        """How many replicas run on each node."""
        return Counter(node for each in self.deployments.values() for node in each.nodes())


class _Serving(msgspec.Struct):
    applications: dict[str, Application] = {}


class MultiNode:
    """A head without CPUs, which runs no replica, and two workers.

    Args:
        environment: Of all its processes, beside that of this one.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Ray's sockets have long names, and may have 107 characters.
        self._folder = Path(tempfile.mkdtemp(prefix="strata-"))
        port = free_port()
        self._dashboard = f"http://127.0.0.1:{port}"
        token = secrets.token_hex(32)
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_TMPDIR": str(self._folder)}
        # Processes are started for replicas, and not one for each CPU in advance.
        own["RAY_prestart_worker_first_driver"] = "0"
        self._environment = {**os.environ, **environment, **own}
        self._environment.pop("RAY_ADDRESS", None)
        self._http = httpx.AsyncClient(
            base_url=self._dashboard, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.multinode_child", str(port), str(WORKER_CPUS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
            )
        pid = self._process.pid
        self._run = Run(pid, psutil.Process(pid).create_time(), self._dashboard, "", str(self._folder / "log"))
        self.workers: list[str] = self._answer()

    @property
    def logs(self) -> Path:
        """Serve's log files, of all nodes."""
        return self._folder / "ray" / "session_latest" / "logs"

    def deploy(self, settings: Settings) -> None:
        """``serve deploy`` what is rendered of the settings."""
        config = self._folder / "serve-config.yaml"
        config.write_text(dump(serve_config(settings)), encoding="utf-8")
        serve = Path(sys.executable).with_name("serve")
        command = [str(serve), "deploy", str(config), "--address", self._dashboard]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    async def graph(self) -> Application:
        """How it is now."""
        answer = await self._http.get("/api/serve/applications/")
        serving = msgspec.json.decode(answer.raise_for_status().content, type=_Serving)
        found = serving.applications.get(APP, Application())
        assert found.status != "DEPLOY_FAILED", found.message
        return found

    def kill(self, worker: str) -> None:
        """End a worker as a machine ends: all its processes at once. Returns when they are gone."""
        self.workers = self._order(f"kill {worker}")

    def fill(self) -> None:
        """Start workers until there are two, as KubeRay does."""
        self.workers = self._order("fill")

    async def stop(self) -> None:
        """End everything, and remove what it left."""
        await self._http.aclose()
        Service(self._folder).stop(self._run, grace=0)
        self._process.wait()
        shutil.rmtree(self._folder)

    def _order(self, order: str) -> list[str]:
        assert self._process.stdin
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[str]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, self._run.tail()
        workers: list[str] = json.loads(line)
        return workers
