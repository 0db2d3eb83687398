"""A real Elasticsearch for tests: one node for all suites, three for fault tests; started when first needed, by worker.

Without Maven or a JDK the tests that need it are skipped, or fail where STRATA_TESTS_NEED_ELASTICSEARCH is 1 (in CI).
"""

import os
from collections.abc import Iterator

import pytest
from filelock import FileLock

from contracts.errors import ConfigError
from deployments.environment import Environment
from index.elastic.devnode import distribution, jdk
from index.elastic.devnode.cluster import DevCluster, Launch
from index.elastic.devnode.distribution import Distribution

# The second compiler's work pays off in nodes that live longer; without it one starts with half the CPU time.
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
# A node that hangs is given up after about ten seconds instead of thirty.
QUICK_FAULT_DETECTION = {
    f"cluster.fault_detection.{check}.{setting}": value
    for check in ("follower_check", "leader_check")
    for setting, value in {"interval": "500ms", "timeout": "4s", "retry_count": 2}.items()
}


@pytest.fixture(scope="session")
def elastic_distribution() -> Iterator[Distribution]:
    """The server in the user's cache, fetched once for all runs and workers."""
    environment = Environment.read()
    environment.cache_dir.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(environment.cache_dir / "tests.lock"):
            provided = distribution.provide(environment.cache_dir, jdk.find(environment.java_homes))
    except ConfigError as error:
        unmet = pytest.fail if os.environ.get("STRATA_TESTS_NEED_ELASTICSEARCH") == "1" else pytest.skip
        unmet(f"There is no Elasticsearch here. {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", ONE_COMPILER)
        yield provided


@pytest.fixture(scope="session")
def elasticsearch_url(elastic_distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the one node of the whole run, or of this worker, answers; each test keeps to indices of its own."""
    cluster = DevCluster(tmp_path_factory.mktemp("elasticsearch"))
    cluster.start(Launch(elastic_distribution, heap="768m", attached=True, http_port=0))
    yield cluster.urls[0]
    cluster.stop()


@pytest.fixture(scope="session")
def three_nodes(elastic_distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Three nodes, in whatever state the tests before left them; tests ask for ``elastic_cluster``."""
    cluster = DevCluster(tmp_path_factory.mktemp("elastic-cluster"))
    launch = Launch(elastic_distribution, heap="448m", attached=True, settings=QUICK_FAULT_DETECTION, http_port=0)
    cluster.start(launch, size=3)
    yield cluster
    cluster.stop()


@pytest.fixture
def elastic_cluster(three_nodes: DevCluster) -> DevCluster:
    """Three nodes, all running and green, for a test that kills, pauses and restarts them."""
    three_nodes.heal()
    return three_nodes
