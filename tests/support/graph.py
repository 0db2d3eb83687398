"""One real local Ray cluster, with the whole graph on it, for all tests that need one.

What takes long to import is imported where it is used: these fixtures are known to all suites.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.keys import Keys
from tests.support.memories import TENANTS, Memories

if TYPE_CHECKING:
    from deployments.settings import Settings


def rank(item: pytest.Item) -> int:
    """Where a test stands in a run; those of the same rank keep their order.

    What starts clusters of its own comes before the one of the session takes its share of the machine; then what waits
    for figures, as Ray's exporter gets slower with each graph of a session.
    """
    suite, name = item.path.parent.name, item.path.name
    if suite == "integration" and name.startswith(("test_cli", "test_multinode", "test_wire_tls")):
        return 0
    if suite == "load":
        return 1
    return 2 if suite == "integration" and name.startswith(("test_metrics", "test_prometheus")) else 3


@dataclass(frozen=True)
class Cluster:
    """Where the cluster is seen from outside."""

    http_port: int
    metrics_port: int

    def scrape(self) -> "Scrape":
        """Our metrics, as Prometheus would scrape them; Ray's own are many more, and would take long to parse."""
        lines = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30).text.splitlines()
        text = "\n".join(line for line in lines if "ray_retrieval_" in line)
        return Scrape([s for family in text_string_to_metric_families(text) for s in family.samples])


@dataclass(frozen=True)
class Scrape:
    """The samples of one scrape."""

    samples: list[Sample]

    def total(self, name: str, **labels: str) -> float:
        """The sum of ``ray_retrieval_<name>`` over all replicas; 0 while there is none."""
        return sum(sample.value for sample in self.find(name, **labels))

    def find(self, name: str, **labels: str) -> list[Sample]:
        """The samples of ``ray_retrieval_<name>`` that have these labels."""
        full = f"ray_retrieval_{name}"
        return [s for s in self.samples if s.name == full and labels.items() <= s.labels.items()]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> "Settings":
    """Hashed vectors need no model; long budgets let a busy machine degrade nothing by itself."""
    from contracts.trace import STAGES
    from deployments.environment import Environment
    from deployments.lifecycle import free_port
    from deployments.settings import RaySettings, parse, resolved

    budgets = {stage: {"budget_ms": 20_000, "reserve_ms": 0} for stage in STAGES}
    budgets["embedder"]["budget_ms"] = 3_000
    raw = {
        "data_dir": str(tmp_path_factory.mktemp("strata")),
        "embedder": {"backend": "deterministic"},
        "server": {"port": free_port(), "read_timeout_ms": 20_000, "ready_timeout_ms": 20_000},
        "chain": {
            "timeout_ms": 60_000,
            "budgets": budgets,
        },
        "limits": {"admission": {"target_ms": 20_000, "initial": 48}},
        "corpora": {
            "retrieve": {"timeout_ms": 30_000, "rerank_timeout_ms": 20_000, "switch_timeout_ms": 5_000},
            # Other writers get in soon; and what failed for a moment is tried again soon.
            "ingest": {"poll_s": 0.5, "idle_s": 0.5, "backoff_s": 0.1, "max_backoff_s": 1, "lease_s": 5},
            "serving": {"http": {"max_wait_ms": 60_000}, "backlog_s": 0.5},
        },
        "gateway": {
            "enabled": True,
            "timeout_ms": 60_000,
            # All tests come from one address.
            "login": {"time_cost": 1, "memory_kib": 1024, "failures_per_address": 100_000},
        },
        "knowledge_base": {
            "enabled": True,
            "http": True,
            **{"timeout_ms": 60_000, "embed_ms": 20_000, "recall_ms": 30_000},
            "outbox": {"poll_s": 0.2, "max_backoff_s": 1, "lease_s": 5},
        },
        "ray": {
            "num_cpus": 8,
            "metrics_port": free_port(),
            "object_store_mb": 128,
            # Metrics reach the exporter within half a second instead of ten.
            "environment": {**RaySettings().environment, "RAY_metrics_report_interval_ms": "500"},
        },
    }
    return resolved(parse(raw), Environment())


@pytest.fixture(scope="session")
def cluster(settings: "Settings") -> Iterator[Cluster]:
    from ray.serve._private import client

    from deployments import graph

    graph.start(settings)
    with pytest.MonkeyPatch.context() as patch:
        # Whether an application is up, or gone, Serve's client looks once a second.
        patch.setattr(client, "CLIENT_POLLING_INTERVAL_S", 0.1)
        yield Cluster(settings.server.port, settings.ray.metrics_port or 0)
    graph.shutdown(settings)


@pytest.fixture(scope="session")
def logs(cluster: Cluster) -> Path:
    """The folder of the cluster's logs."""
    import ray

    return Path(ray._private.worker.global_worker.node.get_session_dir_path()) / "logs"


@pytest.fixture(scope="session")
async def corpus(settings: "Settings") -> "Settings":
    """The settings, with the corpus of both tenants in the index."""
    from deployments.backends import open_writer
    from index.ingest import Ingest
    from models.load import load_embedder

    index = await open_writer(settings.data_dir, settings.index)
    ingest = Ingest(index, index, load_embedder(settings.embedder), settings.ingest)
    for account_id in TENANTS:
        report = await ingest.run(account_id, Memories(account_id))
        assert not report.problems
    await index.close()
    return settings


@pytest.fixture(scope="session")
def served(cluster: Cluster, corpus: "Settings") -> Iterator[str]:
    """The URL of the running graph."""
    from ray import serve

    from deployments import graph

    graph.deploy(corpus)
    yield corpus.url
    serve.delete(graph.APP)


@pytest.fixture(scope="session")
def keys(settings: "Settings") -> Iterator[Keys]:
    keys = Keys(settings)
    yield keys
    keys.close()


@pytest.fixture(scope="session")
async def client(served: str, keys: Keys) -> AsyncIterator[Callable[..., httpx.AsyncClient]]:
    """Makes HTTP clients that send a key made for them."""
    clients = []

    def make(account_id: str = "acme", **identity: Any) -> httpx.AsyncClient:
        token, _ = keys.create(account_id, **identity)
        headers = {"Authorization": f"Bearer {token}"}
        clients.append(httpx.AsyncClient(base_url=served, headers=headers, timeout=90))
        return clients[-1]

    yield make
    for each in clients:
        await each.aclose()


@pytest.fixture(scope="session")
def alice(client: Callable[..., httpx.AsyncClient]) -> httpx.AsyncClient:
    return client(user_space="user:alice")


def log_lines(logs: Path, pattern: str) -> list[str]:
    """All lines of the log files that match."""
    return [line for file in logs.glob(pattern) for line in file.read_text(errors="replace").splitlines()]


async def eventually(condition: Callable[[], Any], every: float = 0.1) -> Any:
    """Wait until ``condition`` returns something true; the test's own time-out bounds the wait."""
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result
        await asyncio.sleep(every)
