"""Fixtures that several suites share, and how a run is put in order."""

import hypothesis
import pytest

from tests.support.elastic import elastic_cluster, elastic_distribution, elasticsearch_url, three_nodes
from tests.support.graph import alice, client, cluster, corpus, keys, logs, rank, served, settings
from tests.support.k8s import gpu_manifests, k8s_schemas, kustomize_command
from tests.support.keys import key_store
from tests.support.postgres import database, database_url, own_postgres, postgres_binaries, postgres_url
from tests.support.prometheus import prometheus_tools

__all__ = [
    "alice",
    "client",
    "cluster",
    "corpus",
    "database",
    "database_url",
    "elastic_cluster",
    "elastic_distribution",
    "elasticsearch_url",
    "gpu_manifests",
    "k8s_schemas",
    "key_store",
    "keys",
    "kustomize_command",
    "logs",
    "own_postgres",
    "postgres_binaries",
    "postgres_url",
    "prometheus_tools",
    "served",
    "settings",
    "three_nodes",
]

# No property becomes false because a machine is busy.
hypothesis.settings.register_profile("strata", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("strata")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests in order."""
    items.sort(key=rank)
