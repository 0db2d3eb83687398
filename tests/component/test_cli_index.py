"""``strata index`` and ``strata reindex`` on a real Elasticsearch."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner, Result

from deployments.cli.app import app

NODES = 150
OTHER = "deterministic-v1"


class Home:
    """Settings of an index with a prefix of its own, and records to ingest."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.config = folder / "config.yaml"
        elastic = {"prefix": f"cli-{uuid4().hex[:12]}", "connection": {"hosts": [url]}, "layout": {"shards": 1}}
        self.url = f"{url}/{elastic['prefix']}-nodes-000002"
        self.settings: dict[str, Any] = {
            "data_dir": str(folder / "data"),
            "embedder": {"backend": "deterministic", "dimensions": 16},
            "index": {"backend": "elasticsearch", "elastic": elastic},
        }
        self.save()
        self.records = folder / "records.jsonl"
        lines = (json.dumps({"id": number, "text": f"record number {number}"}) for number in range(NODES))
        self.records.write_text("\n".join(lines))

    def save(self) -> None:
        self.config.write_text(json.dumps(self.settings))

    def strata(self, *arguments: str, code: int = 0, answer: str = "") -> Result:
        done = CliRunner().invoke(app, [*arguments, "--config", str(self.config)], input=answer)
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return done

    def ingest(self) -> None:
        self.strata("ingest", str(self.records), "--json")

    def versions(self) -> list[tuple[int, int, bool, bool]]:
        """Number, dimensions, whether it serves, whether it is closed."""
        listed = json.loads(self.strata("index", "list", "--json").stdout)["versions"]
        return [(row["version"], row["dimensions"], row["serving"], row["closed"]) for row in listed]

    def copied(self) -> int:
        """Nodes in the second version."""
        httpx.post(f"{self.url}/_refresh")
        return int(httpx.get(f"{self.url}/_count").json().get("count", 0))


@pytest.fixture
def home(tmp_path: Path, elasticsearch_url: str) -> Home:
    return Home(tmp_path, elasticsearch_url)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)


def test_an_index_is_brought_to_another_model_and_the_old_version_dropped(home: Home) -> None:
    assert "No versions" in home.strata("index", "list").stdout
    home.ingest()
    said = home.strata("reindex", "--embedder", OTHER).stdout
    assert f"{NODES} nodes embedded" in said
    assert "It serves now; writes were stopped for" in said
    assert home.versions() == [(1, 16, False, True), (2, 1024, True, False)]
    listed = home.strata("index", "list").stdout
    assert OTHER in listed and str(NODES) in listed and "closed" in listed

    refused = home.strata("index", "drop", "2", "--yes", code=1)
    assert "serves" in refused.stderr
    assert home.strata("index", "drop", "1", code=1, answer="n\n").exit_code == 1
    home.strata("index", "drop", "1", answer="y\n")
    assert home.versions() == [(2, 1024, True, False)]


def test_an_ingest_with_the_old_model_is_refused_after_the_swap_and_says_what_to_do(home: Home) -> None:
    home.ingest()
    home.strata("reindex", "--embedder", OTHER)
    with home.records.open("a") as file:
        file.write('\n{"id": "more", "text": "more"}')
    refused = home.strata("ingest", str(home.records), code=1)
    assert "strata reindex" in refused.stderr


def test_a_version_that_lacks_records_is_swapped_to_only_when_that_is_confirmed(home: Home) -> None:
    home.ingest()
    assert "Version 1 goes on serving" in home.strata("reindex", "--embedder", OTHER, "--no-swap").stdout
    with home.records.open("a") as file:
        file.write('\n{"id": "more", "text": "more"}')
    home.ingest()
    refused = home.strata("index", "swap", "2", code=1, answer="n\n")
    assert "lacks 1 records" in refused.stderr and f"strata reindex --embedder {OTHER}" in refused.stderr
    assert home.versions() == [(1, 16, True, False), (2, 1024, False, False)]

    report = json.loads(home.strata("reindex", "--embedder", OTHER, "--json").stdout)
    assert (report["resumed"], report["swapped"], report["nodes"]) == (True, True, 1)
    home.strata("index", "swap", "1")
    assert home.versions() == [(1, 16, True, False), (2, 1024, False, True)]
    home.settings["embedder"]["dimensions"] = 1024
    home.save()
    home.strata("index", "swap", "2")
    with home.records.open("a") as file:
        file.write('\n{"id": "most", "text": "most"}')
    home.ingest()
    home.strata("index", "swap", "1", "--yes")
    assert home.versions() == [(1, 16, True, False), (2, 1024, False, True)]


def test_an_empty_version_can_be_made_and_the_first_one_serves(home: Home) -> None:
    assert "It serves" in home.strata("index", "create").stdout
    assert OTHER in home.strata("index", "create", "--embedder", OTHER).stdout
    assert home.versions() == [(1, 16, True, False), (2, 1024, False, False)]
    home.ingest()
    home.strata("reindex", "--embedder", OTHER)
    assert home.versions() == [(1, 16, False, True), (2, 1024, True, False)]


def test_the_model_of_the_index_is_refused(home: Home) -> None:
    home.ingest()
    assert "already" in home.strata("reindex", code=1).stderr
    assert "no index version 7" in home.strata("index", "swap", "7", code=1).stderr


@pytest.mark.parametrize("command", [["index", "list"], ["index", "create"], ["index", "swap", "1"], ["reindex"]])
def test_with_the_embedded_index_all_say_that_they_are_for_the_other(home: Home, command: list[str]) -> None:
    home.settings["index"]["backend"] = "embedded"
    home.save()
    refused = home.strata(*command, code=1)
    assert "index.backend" in refused.stderr and "another data_dir" in refused.stderr


def test_a_cluster_that_does_not_answer_is_told_without_a_traceback(home: Home) -> None:
    home.settings["index"]["elastic"]["connection"]["hosts"] = ["http://127.0.0.1:9"]
    home.save()
    assert "no connection" in home.strata("index", "list", code=1).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_says_so_and_the_next_goes_on(home: Home, number: signal.Signals) -> None:
    home.ingest()
    # A node a time takes long enough to be met.
    home.settings["ingest"] = {"embed_texts": 1}
    home.save()
    command = [sys.executable, "-c", "from deployments.cli import main; main()", "reindex", "--embedder", OTHER]
    running = subprocess.Popen([*command, "--config", str(home.config)], stderr=subprocess.PIPE, text=True)
    until(lambda: home.copied() > 3)
    busy = json.loads(home.strata("index", "list", "--json").stdout)["busy"]
    assert busy.startswith(f"Process {running.pid}")
    running.send_signal(number)
    _, said = running.communicate(timeout=120)
    assert running.returncode != 0
    assert "Stopped; the old version serves" in said and "Traceback" not in said
    assert home.versions() == [(1, 16, True, False), (2, 1024, False, False)]

    home.settings["ingest"] = {}
    home.save()
    report = json.loads(home.strata("reindex", "--embedder", OTHER, "--json").stdout)
    assert report["resumed"] and report["swapped"]
    assert report["nodes"] < NODES
