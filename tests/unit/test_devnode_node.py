"""One node: settings, heap, process, log."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError
from index.elastic.devnode import node as processes
from index.elastic.devnode.node import Node, heap_size, last_error, log_file, settings

PEERS = [Node(f"node-{number}", 9200 + number, 9300 + number) for number in (1, 2, 3)]


@pytest.mark.parametrize(("text", "heap"), [("1g", "1g"), (" 512M ", "512m"), ("256m", "256m"), ("31G", "31g")])
def test_a_heap_is_a_number_of_megabytes_or_gigabytes(text: str, heap: str) -> None:
    assert heap_size(text) == heap


@pytest.mark.parametrize("text", ["", "1", "1t", "255m", "0g", "-1g", "1.5g", "1g -XX:+Exit", "1gb", "9999999g"])
def test_any_other_heap_is_an_error_that_shows_a_right_one(text: str) -> None:
    with pytest.raises(ConfigError, match="no heap size") as error:
        heap_size(text)
    assert error.value.field == "heap"
    assert "512m" in error.value.remedy


@given(st.text(max_size=12))
def test_whatever_passes_as_a_heap_is_one_word_for_java(text: str) -> None:
    try:
        heap = heap_size(text)
    except ConfigError:
        return
    assert heap[:-1].isascii()
    assert heap[:-1].isdigit()
    assert heap[-1] in "mg"


def test_a_single_node_looks_for_no_others(tmp_path: Path) -> None:
    values = settings(PEERS[0], PEERS[:1], tmp_path, bootstrap=True, extra={})
    assert values["discovery.type"] == "single-node"
    assert not any(key.startswith(("cluster.initial", "discovery.seed")) for key in values)


def test_nodes_elect_a_master_by_themselves_only_before_the_cluster_was_ever_formed(tmp_path: Path) -> None:
    first = settings(PEERS[1], PEERS, tmp_path, bootstrap=True, extra={})
    later = settings(PEERS[1], PEERS, tmp_path, bootstrap=False, extra={})
    assert first["cluster.initial_master_nodes"] == ["node-1", "node-2", "node-3"]
    assert "cluster.initial_master_nodes" not in later
    assert (
        first["discovery.seed_hosts"] == later["discovery.seed_hosts"] == [f"127.0.0.1:{9300 + n}" for n in (1, 2, 3)]
    )


def test_nodes_listen_on_this_machine_only(tmp_path: Path) -> None:
    values = settings(PEERS[0], PEERS, tmp_path, bootstrap=False, extra={})
    assert (values["network.host"], values["http.port"], values["transport.port"]) == ("127.0.0.1", 9201, 9301)


def test_further_settings_win(tmp_path: Path) -> None:
    extra = {"cluster.name": "mine", "cluster.fault_detection.leader_check.interval": "500ms"}
    values = settings(PEERS[0], PEERS[:1], tmp_path, bootstrap=True, extra=extra)
    assert extra.items() <= values.items()


def test_what_is_written_reads_back_even_from_a_folder_with_odd_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a: b #c"
    values = settings(PEERS[0], PEERS, folder, bootstrap=True, extra={})
    config = processes.configure(folder, values)
    assert yaml.safe_load((config / "elasticsearch.yml").read_text()) == values
    assert "rootLogger.level = warn" in (config / "log4j2.properties").read_text()


def write_log(folder: Path, text: str) -> None:
    log_file(folder).parent.mkdir(parents=True)
    log_file(folder).write_text(text)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "WARNING: Using incubator modules\n"
            "[2026][WARN ][o.e.x] slow\n"
            "java.lang.IllegalStateException: no lock\n\tat x.Y(Y.java:1)\nCaused by: java.io.IOException: held\n"
            "[ERROR] java.lang.IllegalStateException: no lock\n",
            "[ERROR] java.lang.IllegalStateException: no lock",
        ),
        ("[2026][ERROR][o.e.h] can't bind\n[2026][WARN ][o.e.x] closing\n", "[2026][ERROR][o.e.h] can't bind"),
        (
            "Error occurred during initialization of VM\nToo small maximum heap\n",
            "Error occurred during initialization of VM",
        ),
        (
            "Terminating due to java.lang.OutOfMemoryError: Java heap space\n",
            "Terminating due to java.lang.OutOfMemoryError: Java heap space",
        ),
        ("nothing marked\n\tat x.Y(Y.java:1)\n", "nothing marked"),
        ("", ""),
    ],
)
def test_the_last_error_of_a_log_is_a_telling_line(tmp_path: Path, log: str, expected: str) -> None:
    write_log(tmp_path, log)
    assert last_error(tmp_path) == expected


def test_a_node_without_a_log_has_no_error(tmp_path: Path) -> None:
    assert last_error(tmp_path) == ""


@pytest.fixture
def fake_node(tmp_path: Path) -> Iterator[tuple[Node, "subprocess.Popen[bytes]"]]:
    """A process in a node's place that ends when its input does, and ignores SIGTERM."""
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"
    )
    (tmp_path / "logs").mkdir()
    node, child = processes.launch(PEERS[0], [sys.executable, "-c", script], tmp_path, attached=True)
    while log_file(tmp_path).read_text() != "up\n":
        assert child.poll() is None
    yield node, child
    child.kill()
    child.communicate()


def test_a_started_node_is_found_by_its_process(fake_node: tuple[Node, "subprocess.Popen[bytes]"]) -> None:
    node, child = fake_node
    assert node.process() == psutil.Process(child.pid)


def test_stopping_ends_even_a_process_that_ignores_sigterm(fake_node: tuple[Node, "subprocess.Popen[bytes]"]) -> None:
    node, child = fake_node
    processes.stop([node], grace=0.2)
    assert node.process() is None
    assert not psutil.pid_exists(child.pid)


def test_stopping_ends_a_paused_process(fake_node: tuple[Node, "subprocess.Popen[bytes]"]) -> None:
    node, child = fake_node
    child.send_signal(signal.SIGSTOP)
    processes.stop([node], grace=0.2)
    assert node.process() is None


def test_a_process_that_got_the_same_id_later_is_left_alone(fake_node: tuple[Node, "subprocess.Popen[bytes]"]) -> None:
    node, child = fake_node
    stale = Node(node.name, node.http_port, node.transport_port, node.pid, node.started - 60)
    assert stale.process() is None
    processes.stop([stale], grace=1)
    assert child.poll() is None


def test_an_attached_node_sees_its_input_end_when_it_is_dropped(
    fake_node: tuple[Node, "subprocess.Popen[bytes]"],
) -> None:
    _, child = fake_node
    assert child.stdin
    child.stdin.close()
    assert child.wait(30) == 0
