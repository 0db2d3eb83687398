"""Fixtures that several suites share."""

from tests.support.elastic import elastic_cluster, elastic_distribution, elasticsearch_url, three_nodes

__all__ = ["elastic_cluster", "elastic_distribution", "elasticsearch_url", "three_nodes"]
