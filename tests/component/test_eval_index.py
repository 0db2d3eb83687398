"""``strata eval index`` on both backends, and nothing left behind."""

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from deployments.cli.app import app
from evaluation import index_bench, timed_search


def eval_index(folder: Path, url: str, *arguments: str) -> Result:
    config = folder / "config.yaml"
    settings = {"data_dir": str(folder / "data"), "index": {"elastic": {"connection": {"hosts": [url]}}}}
    config.write_text(json.dumps(settings))  # JSON is YAML
    options = ("--rows", "300", "--queries", "2", "--dimensions", "16", "--accounts", "4", "--config", str(config))
    return CliRunner().invoke(app, ["eval", "index", *options, *arguments])


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_bench, "WARM_UP_ROWS", 100)
    monkeypatch.setattr(timed_search, "WARM_UP", 1)


@pytest.fixture
def names(elasticsearch_url: str) -> set[str]:
    """The indices of the cluster before."""
    return _names(elasticsearch_url)


def _names(url: str) -> set[str]:
    return {row["index"] for row in httpx.get(f"{url}/_cat/indices/bench-*?format=json").json()}


def test_both_backends_are_measured_and_removed(elasticsearch_url: str, names: set[str], tmp_path: Path) -> None:
    done = eval_index(tmp_path, elasticsearch_url, "--json", str(tmp_path / "figures.json"))
    assert done.exit_code == 0, done.output
    assert "R@100" in done.stdout
    (report,) = json.loads((tmp_path / "figures.json").read_text())
    filled = {each["index"]: each for each in report["ingests"]}
    assert filled.keys() == {"embedded", "elasticsearch"}
    assert all(each["rows"] == 300 and each["bytes"] > 0 for each in filled.values())
    dense = [each for each in report["searches"] if each["mode"] == "dense"]
    assert len(dense) == 8
    # So few records are compared one by one.
    assert {(each["recall_10"], each["recall_100"]) for each in dense} == {(1.0, 1.0)}
    trades = report["trades"]
    assert len(trades["candidates"]) == 16
    assert set(trades["shards"]["account"].values()) == {1}
    assert set(trades["shards"]["none"].values()) == {3}
    assert _names(elasticsearch_url) == names


def test_the_embedded_index_is_measured_without_a_cluster(tmp_path: Path) -> None:
    done = eval_index(tmp_path, "http://127.0.0.1:9", "--backend", "embedded", "--json", "-")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    assert {each["index"] for each in report["searches"]} == {"embedded"}
    assert report["trades"] is None


def test_a_cluster_that_does_not_answer_is_told_with_a_remedy(tmp_path: Path) -> None:
    done = eval_index(tmp_path, "http://127.0.0.1:9", "--backend", "elasticsearch")
    assert done.exit_code == 1
    assert "→" in done.stderr
    assert "Traceback" not in done.output
