"""Fixtures that several suites share."""

from tests.support.elastic import elastic_cluster, elastic_distribution, elasticsearch_url, three_nodes
from tests.support.graph import alice, client, cluster, corpus, keys, logs, served, settings
from tests.support.k8s import gpu_manifests, k8s_schemas, kustomize_command
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
