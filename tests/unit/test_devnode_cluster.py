"""The development cluster's state, ports and errors, without Elasticsearch."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from contracts.errors import ConfigError
from index.elastic.devnode import ports
from index.elastic.devnode.cluster import DevCluster, Launch
from index.elastic.devnode.distribution import Distribution
from index.elastic.devnode.health import Health, ask, wait_for
from index.elastic.devnode.jdk import Jdk
from index.elastic.devnode.node import Node
from index.elastic.devnode.state import State, StateFile, discover, folder_of

SELF = psutil.Process()


def node(number: int, *, running: bool = False) -> Node:
    """A node; one that runs borrows the process of the tests."""
    pid, started = (os.getpid(), SELF.create_time()) if running else (0, 0.0)
    return Node(f"node-{number}", 21_000 + number, 22_000 + number, pid, started)


def write(data_dir: Path, *nodes: Node, formed: bool = True) -> StateFile:
    file = StateFile(folder_of(data_dir))
    file.folder.mkdir(parents=True)
    file.write(State("9.2.0", "512m", nodes, formed=formed))
    return file


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[[str], Launch]:
    """Makes a launch whose java is a shell script."""

    def make(script: str, patience_s: float = 30) -> Launch:
        java = tmp_path / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        distribution = Distribution(tmp_path / "dist", Jdk(tmp_path / "jdk", 25, frozenset()))
        return Launch(distribution, heap="512m", patience_s=patience_s)

    return make


def test_the_state_reads_back(tmp_path: Path) -> None:
    file = write(tmp_path, node(1), node(2), node(3))
    assert file.read() == State("9.2.0", "512m", (node(1), node(2), node(3)), formed=True)


@pytest.mark.parametrize("content", ["", "{", '{"version": 9}'])
def test_a_damaged_state_counts_as_none(tmp_path: Path, content: str) -> None:
    file = write(tmp_path, node(1))
    (file.folder / "cluster.json").write_text(content)
    assert file.read() is None


def test_discover_finds_all_nodes_of_a_running_cluster(tmp_path: Path) -> None:
    write(tmp_path, node(1), node(2, running=True), node(3))
    assert discover(tmp_path) == [f"http://127.0.0.1:{port}" for port in (21_001, 21_002, 21_003)]


def test_discover_without_a_running_cluster_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        discover(tmp_path / "empty")
    assert "strata es start --detach" in error.value.remedy
    write(tmp_path, node(1))
    with pytest.raises(ConfigError, match="No development Elasticsearch runs"):
        discover(tmp_path)


@pytest.mark.parametrize("size", [-1, 2, 4])
def test_a_cluster_of_another_size_than_one_or_three_is_refused(
    tmp_path: Path, fake_java: Callable[[str], Launch], size: int
) -> None:
    with pytest.raises(ConfigError, match="1 or 3") as error:
        DevCluster(tmp_path).start(fake_java("exit 1"), size)
    assert error.value.field == "nodes"


def test_the_size_of_existing_data_cant_change(tmp_path: Path, fake_java: Callable[[str], Launch]) -> None:
    write(tmp_path, node(1))
    with pytest.raises(ConfigError, match="made with 1 node") as error:
        DevCluster(tmp_path).start(fake_java("exit 1"), 3)
    assert "--nodes 1" in error.value.remedy
    assert str(folder_of(tmp_path)) in error.value.remedy


def test_a_wrong_heap_is_told_before_anything_is_made(tmp_path: Path) -> None:
    launch = Launch(Distribution(tmp_path, Jdk(tmp_path, 25, frozenset())), heap="tiny")
    with pytest.raises(ConfigError, match="no heap size"):
        DevCluster(tmp_path).start(launch)
    assert not folder_of(tmp_path).exists()


def test_a_node_that_dies_at_the_start_is_told_with_the_last_error_of_its_log(
    tmp_path: Path, fake_java: Callable[[str], Launch]
) -> None:
    cluster = DevCluster(tmp_path)
    with pytest.raises(ConfigError, match=r"node-1 stopped: \[ERROR\] no port") as error:
        cluster.start(fake_java("echo '[ERROR] no port'; exit 1"))
    assert "node.log" in error.value.remedy


def test_nodes_that_are_not_green_in_time_are_stopped_again(tmp_path: Path, fake_java: Callable[..., Launch]) -> None:
    cluster = DevCluster(tmp_path)
    with pytest.raises(ConfigError, match="not green after 0 s: node-1 no answer, node-2 no answer, node-3 no answer"):
        cluster.start(fake_java("exec sleep 600", patience_s=0.3), 3)
    assert len(cluster.nodes) == 3
    assert not any(psutil.pid_exists(each.pid) for each in cluster.nodes)
    assert not cluster.status().running


def test_nothing_is_healed_that_was_not_started_here(tmp_path: Path) -> None:
    write(tmp_path, node(1))
    for action in (DevCluster(tmp_path).heal, lambda: DevCluster(tmp_path).restart(0)):
        with pytest.raises(ConfigError, match="not started by this process"):
            action()


def test_stopping_where_nothing_runs_is_no_error(tmp_path: Path) -> None:
    assert DevCluster(tmp_path / "empty").stop() == 0
    write(tmp_path, node(1))
    assert DevCluster(tmp_path).stop() == 0


def test_the_status_of_a_cluster_that_is_down_keeps_ports_and_shows_no_process(tmp_path: Path) -> None:
    write(tmp_path, Node("node-1", 21_001, 22_001, pid=os.getpid(), started=1.0))
    status = DevCluster(tmp_path).status()
    assert (status.running, status.health, status.version, status.heap) == (False, "", "9.2.0", "512m")
    assert [(each.http_port, each.pid) for each in status.nodes] == [(21_001, 0)]


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert not ports.is_free(taken)
        [assigned] = ports.assign([Node("node-1", taken, taken)])
    assert taken not in {assigned.http_port, assigned.transport_port}


def test_the_first_node_gets_the_usual_port_and_all_ports_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: True)
    assigned = ports.assign([Node(f"node-{number}", 0, 0) for number in (1, 2, 3)])
    assert assigned[0].http_port == 9200
    assert len({port for each in assigned for port in (each.http_port, each.transport_port)}) == 6


def test_a_node_keeps_its_ports_from_start_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: True)
    assert ports.assign([node(1), node(2)]) == (node(1), node(2))


def test_running_nodes_keep_their_ports_though_these_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port > 23_000)
    running, other = ports.assign([node(1, running=True), node(2)])
    assert running == node(1, running=True)
    assert other.http_port > 23_000


@pytest.mark.parametrize(
    ("status", "seen", "size", "up"),
    [
        ("green", 3, 3, True),
        ("green", 2, 3, False),
        ("yellow", 3, 3, False),
        ("green", 1, 1, True),
        ("yellow", 1, 1, True),
        ("red", 1, 1, False),
    ],
)
def test_a_cluster_is_up_when_all_that_it_can_hold_is_there(status: str, seen: int, size: int, up: bool) -> None:
    assert Health(status, seen).is_up(size) is up  # type: ignore[arg-type]


def test_a_port_where_nobody_listens_has_no_health() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert ask(f"http://127.0.0.1:{probe.getsockname()[1]}") is None


def test_waiting_ends_with_the_condition_or_with_the_patience() -> None:
    answers = iter([False, True])
    assert wait_for(lambda: next(answers), 30)
    assert not wait_for(lambda: False, 0)
