"""The command line against a real service: up, search, read, status, down, and nothing left behind."""

import json
import os
import random
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
from typer.testing import CliRunner

from deployments.cli.app import app
from deployments.lifecycle import Run, Service, port_is_free
from tests.support.models import model_cache

__all__ = ["model_cache"]

STRATA = [sys.executable, "-c", "from deployments.cli import main; main()"]
RECORDS = [
    {"id": "run", "title": "subprocess.run", "text": "Run a command and wait for it, with an optional timeout."},
    {"id": "reader", "title": "csv.DictReader", "text": "Read rows of a csv file as dictionaries."},
    {"id": "pool", "title": "ProcessPoolExecutor", "text": "Call functions in a pool of worker processes."},
]
# Starting the graph takes seconds on a quiet machine and minutes on a busy one.
PATIENCE = 280
# Fewer processes, where the graph is not what is tested; the second without corpora.
SMALL = {"stages": {"colocate": ["planner", "seed_search", "expander", "rechecker", "reranker", "assembler"]}}
SMALLEST = {**SMALL, "corpora": {"enabled": []}}


def free_port() -> int:
    """A port below those that the system, and with it Ray, takes by itself, so that it stays free until it is used."""
    return next(port for port in random.sample(range(20_000, 32_000), 100) if port_is_free("127.0.0.1", port))


class Home:
    """A data folder of its own with settings, as a user's working folder would hold them."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.config = folder / "config.yaml"
        self._settings: dict[str, Any] = {}
        self.change(
            data_dir=str(folder / "data"),
            embedder={"backend": "deterministic", "dimensions": 64},
            server={"port": self.port},
            chain={"timeout_ms": 20_000},
        )
        self.service = Service(folder / "data" / "run")

    def change(self, **parts: Any) -> None:
        """Put parts of the settings in place of those that were there."""
        self._settings |= parts
        self.config.write_text(json.dumps(self._settings))  # JSON is YAML

    def strata(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def here(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The same in this process, for what asks a running service: most of such a command's time is its start."""
        command = [*arguments, "--config", str(self.config)]
        done = CliRunner().invoke(app, command)
        assert not check or done.exit_code == 0, done.stderr
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)

    def command(self, *arguments: str) -> list[str]:
        return [*STRATA, *arguments, "--config", str(self.config)]

    def start_in_foreground(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.command("up"), start_new_session=True, stderr=subprocess.DEVNULL)

    def ingest(self) -> None:
        records = self.folder / "records.jsonl"
        records.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
        self.strata("ingest", str(records))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    if run := home.service.last():
        home.service.stop(run, grace=0)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.1)


def running(home: Home, processes: int = 1) -> Run:
    """The service, once it has so many processes."""

    def enough() -> bool:
        run = home.service.current()
        return run is not None and len(run.processes()) >= processes

    until(enough)
    run = home.service.current()
    assert run is not None
    return run


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.timeout(600)
def test_a_detached_service_answers_and_is_taken_down_without_a_trace(home: Home) -> None:
    home.ingest()
    saved = home.strata("keys", "create", "--save").stdout
    key_file = home.folder / "data" / "keys" / "local.key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert key_file.read_text().strip() not in saved

    home.strata("up", "--detach")
    run = running(home)
    processes = run.processes()
    assert len(processes) > 5

    status = json.loads(home.strata("status", "--json").stdout)
    assert status["ready"]
    assert status["index"] == {"local": {"record": 3}}
    assert {part["status"] for part in status["deployments"]} == {"HEALTHY"}
    assert {"planner", "embedder", "seed_search", "ingress"} <= {part["name"] for part in status["deployments"]}

    found = json.loads(home.strata("search", "run a command with a timeout", "--top-k", "2", "--json").stdout)
    assert found["hits"][0]["uri"] == "strata://shared/records/run"
    here = json.loads(home.strata("search", "run a command with a timeout", "--in-process", "--json").stdout)
    assert here["hits"][0]["uri"] == found["hits"][0]["uri"]
    read = json.loads(home.here("read", found["hits"][0]["uri"], "--level", "L2", "--json").stdout)
    assert read["block"]["content_excerpt"] == RECORDS[0]["text"]

    refused = home.here("search", "run", "--key", "strata_0_0", check=False)
    assert refused.returncode == 1
    assert "RET-4011" in refused.stderr
    second = home.strata("up", "--detach", check=False)
    assert second.returncode == 1
    assert "strata down" in second.stderr
    assert run.is_alive()

    processes = run.processes()
    home.strata("down")
    assert all(map(is_gone, processes))
    assert run.processes() == []
    assert port_is_free("127.0.0.1", home.port)
    assert home.strata("status", check=False).returncode == 1
    after = home.here("search", "run", check=False)
    assert after.returncode == 1
    assert "strata up" in after.stderr


@pytest.mark.timeout(600)
def test_ctrl_c_ends_a_foreground_service_with_all_its_processes(home: Home) -> None:
    """The terminal sends SIGINT to the whole foreground process group."""
    home.change(**SMALLEST)
    command = home.start_in_foreground()
    run = running(home)
    until(lambda: (readiness := run.readiness()) and set(readiness.stages.values()) == {"ok"})
    assert httpx.get(f"{run.url}/healthz").status_code == 200
    processes = run.processes()
    os.killpg(command.pid, signal.SIGINT)
    assert command.wait(PATIENCE) == 130
    assert all(map(is_gone, processes))
    assert run.processes() == []
    assert home.service.last() is None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_foreground_service_that_is_killed_while_it_starts_leaves_nothing(home: Home, number: signal.Signals) -> None:
    command = home.start_in_foreground()
    # By the third process Ray is on its way.
    run = running(home, processes=3)
    os.kill(command.pid, number)
    command.wait(PATIENCE)
    until(lambda: not run.processes())


@pytest.mark.timeout(600)
def test_a_graph_that_cant_start_says_why_and_leaves_nothing(home: Home) -> None:
    home.change(**SMALLEST, embedder={"backend": "onnx", "name": "no-such-model"})
    failed = home.strata("up", "--detach", check=False)
    assert failed.returncode == 1
    assert "no-such-model" in failed.stderr
    assert home.service.last() is None


@pytest.mark.timeout(600)
def test_the_demo_answers_from_the_standard_library_and_cleans_up_when_told_so(home: Home, model_cache: Path) -> None:
    """The main job: real model, real graph, L0 → L1 → L2 over HTTP (section 10, integration 1 and 2)."""
    home.change(embedder={"backend": "onnx", "cache_dir": str(model_cache)})
    shown = home.strata("demo", "--no-keep").stdout
    first = shown.partition("run a command and stop it after a timeout")[2].partition("\n\n")[0]
    assert "strata://shared/python/subprocess/call" in first
    assert "strata://shared/python/subprocess/run" in first
    assert "csv/DictReader" in shown
    assert "tempfile/TemporaryDirectory" in shown
    overview, _, source = shown.partition("L1  strata://shared/python/subprocess/call")[2].partition("L2  ")
    assert "Run command with arguments." in overview
    assert "with Popen(*popenargs, **kwargs) as p:" in source
    assert home.service.last() is None
    assert port_is_free("127.0.0.1", home.port)
