"""A real development Elasticsearch: kept between starts, gone when stopped, and three nodes that outlive one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from contracts.errors import ConfigError
from index.elastic.devnode.cluster import DevCluster
from index.elastic.devnode.distribution import Distribution
from index.elastic.devnode.health import ask
from index.elastic.devnode.state import discover

STRATA = [sys.executable, "-c", "from deployments.cli import main; main()"]
# A node starts in seconds on a quiet machine.
PATIENCE = 200


class Home:
    """A data folder of its own, as a user's working folder would hold it."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.config = folder / "config.yaml"
        self.config.write_text(json.dumps({"data_dir": str(self.data_dir)}))  # JSON is YAML
        self.cluster = DevCluster(self.data_dir)

    def command(self, *arguments: str) -> list[str]:
        return [*STRATA, "es", *arguments, "--config", str(self.config)]

    def es(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def status(self) -> dict[str, Any]:
        return json.loads(self.es("status", "--json", check=False).stdout)


@pytest.fixture
def home(tmp_path: Path, elastic_distribution: Distribution) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.cluster.stop(grace_s=0)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.1)


def test_a_detached_node_is_green_stops_without_a_trace_and_has_its_data_at_the_next_start(home: Home) -> None:
    home.es("start", "--heap", "512m", "--detach")
    status = home.status()
    [node] = status["nodes"]
    assert (status["health"], status["version"], status["heap"]) == ("green", "9.2.0", "512m")
    assert discover(home.data_dir) == [node["url"]]
    httpx.put(f"{node['url']}/notes/_doc/1?refresh=true", json={"text": "kept"}).raise_for_status()

    again = home.es("start", "--heap", "1g", "--detach")
    assert "runs already" in again.stdout
    assert home.status()["nodes"] == [node]
    assert home.status()["heap"] == "512m"
    refused = home.es("start", "--nodes", "3", check=False)
    assert refused.returncode == 1
    assert "--nodes 1" in refused.stderr

    home.es("stop")
    assert not psutil.pid_exists(node["pid"])
    assert home.es("status", check=False).returncode == 1
    with pytest.raises(ConfigError, match="strata es start"):
        discover(home.data_dir)

    home.es("start", "--heap", "512m", "--detach")
    [url] = discover(home.data_dir)
    assert url == node["url"]
    assert httpx.get(f"{url}/notes/_doc/1").json()["_source"] == {"text": "kept"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_foreground_node_ends_with_its_command_however_that_ends(home: Home, number: signal.Signals) -> None:
    command = subprocess.Popen(
        home.command("start", "--heap", "512m"), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert command.stdout
    until(lambda: "Ctrl-C stops it" in command.stdout.readline())
    [node] = home.cluster.nodes
    assert ask(node.url)
    os.kill(command.pid, number)
    command.communicate(timeout=PATIENCE)
    if number == signal.SIGKILL:
        until(lambda: not psutil.pid_exists(node.pid))
    else:
        assert command.returncode == 130
    assert not psutil.pid_exists(node.pid)


def test_a_foreground_command_ends_with_its_node(home: Home) -> None:
    command = subprocess.Popen(
        home.command("start", "--heap", "512m"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout
    until(lambda: "Ctrl-C stops it" in command.stdout.readline())
    home.cluster.kill(0)
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 1
    assert "node-1 stopped" in said
    assert "See the logs" in said


def test_a_node_that_cant_start_is_told_with_its_own_words(home: Home) -> None:
    folder = home.cluster.folder / "node-1"
    folder.mkdir(parents=True)
    (folder / "data").write_text("no folder")
    refused = home.es("start", "--detach", check=False)
    assert refused.returncode == 1
    assert str(folder / "data") in refused.stderr


def test_three_nodes_form_one_cluster_that_answers_in_full_after_one_was_killed(elastic_cluster: DevCluster) -> None:
    first, second, third = elastic_cluster.urls
    settings = {"number_of_shards": 3, "number_of_replicas": 1}
    httpx.put(f"{first}/notes", json={"settings": settings}, timeout=60).raise_for_status()
    try:
        for number in range(20):
            httpx.put(f"{second}/notes/_doc/{number}", json={"n": number}, timeout=60).raise_for_status()
        httpx.post(f"{second}/notes/_refresh", timeout=60).raise_for_status()
        elastic_cluster.wait_up(PATIENCE)
        elastic_cluster.kill(0)
        assert ask(first) is None
        until(lambda: (health := ask(second)) and (health.status, health.number_of_nodes) == ("yellow", 2))
        assert httpx.get(f"{third}/notes/_count", timeout=60).json()["count"] == 20
        elastic_cluster.restart(0)
        elastic_cluster.wait_up(PATIENCE)
        assert elastic_cluster.urls == [first, second, third]
        assert httpx.get(f"{first}/notes/_count", timeout=60).json()["count"] == 20
    finally:
        httpx.delete(f"{second}/notes", timeout=60)


def test_a_paused_node_hangs_until_it_is_resumed(elastic_cluster: DevCluster) -> None:
    url = elastic_cluster.urls[2]
    elastic_cluster.pause(2)
    with pytest.raises(httpx.TimeoutException):
        httpx.get(f"{url}/_cluster/health", timeout=0.5)
    elastic_cluster.resume(2)
    elastic_cluster.wait_up(PATIENCE)


def test_a_cluster_that_was_killed_whole_is_healed_with_its_ports(elastic_cluster: DevCluster) -> None:
    urls = elastic_cluster.urls
    for place in range(3):
        elastic_cluster.kill(place)
    assert [ask(url) for url in urls] == [None, None, None]
    elastic_cluster.heal()
    assert elastic_cluster.urls == urls
    assert all((health := ask(url)) and health.status == "green" for url in urls)


def test_the_node_shared_by_all_tests_answers(elasticsearch_url: str) -> None:
    health = ask(elasticsearch_url)
    assert health
    assert health.number_of_nodes == 1
