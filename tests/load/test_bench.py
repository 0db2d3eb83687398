"""``strata bench`` against the real graph: that it measures, not what; no figure here is a limit."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.trace import STAGES
from deployments.cli.app import app
from deployments.settings import Settings
from tests.support.graph import Cluster

LOAD = ("--rates", "5,10", "--duration", "3", "--warm-up", "1", "--patience", "60")
# Any machine keeps to these, however busy.
EASY = {"p95_ms": {"planner": 1e6, "search_memory": 1e6}, "max_degraded": 1.0, "keeps_up": 1e-6}
IMPOSSIBLE = {**EASY, "p95_ms": {"expander": 1e-6}}


def bench(settings: Settings, folder: Path, token: str, limits: dict[str, object], *options: str) -> Result:
    config = folder / "config.yaml"
    raw = {"data_dir": str(settings.data_dir), "embedder": {"backend": "deterministic"}, "bench": limits}
    config.write_text(json.dumps(raw), encoding="utf-8")
    return CliRunner().invoke(
        app, ["bench", *LOAD, "--key", token, "--config", str(config), *options], catch_exceptions=False
    )


def test_a_run_over_http_measures_every_stage_in_histograms_and_answers(
    settings: Settings, cluster: Cluster, served: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: the service's figures are those of the very searches that the client sent."""
    monkeypatch.setenv("STRATA_URL", served)
    metrics, picture = f"http://127.0.0.1:{cluster.metrics_port}/metrics", tmp_path / "load.svg"
    done = bench(settings, tmp_path, token, EASY, "--metrics", metrics, "--plot", str(picture), "--json", "-")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["target"], report["missed"]) == (served, [])
    assert [(step["rate"], step["arrivals"], step["answered"]) for step in report["steps"]] == [
        (5, 15, 15),
        (10, 30, 30),
    ]
    for step in report["steps"]:
        assert step["latency"]["count"] == step["service"]["count"] == step["answered"]
        assert step["latency"]["p95_ms"] >= step["latency"]["p50_ms"] > 0
        assert [stage["name"] for stage in step["stages"]] == list(STAGES)
        for stage in step["stages"]:
            # A search may look a second time.
            assert stage["service"]["count"] >= stage["answers"]["count"] == step["answered"]
            assert stage["work"]["count"] >= stage["service"]["count"]
        assert 0 <= step["cache_hits"] <= 1
        assert step["client_cores"] > 0
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_a_missed_budget_shows_in_the_table_and_the_exit_code(
    settings: Settings, served: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C40, D4. Without metrics the answers' own times are what counts."""
    monkeypatch.setenv("STRATA_URL", served)
    done = bench(settings, tmp_path, token, IMPOSSIBLE)
    assert done.exit_code == 1, done.output
    assert "✗ 5/s: P95 of expander" in done.stdout
    assert "✗ 10/s: P95 of expander" in done.stdout


def test_the_stages_in_this_process_are_measured_call_by_call(corpus: Settings, token: str, tmp_path: Path) -> None:
    done = bench(corpus, tmp_path, token, {**EASY, "max_failed": 0}, "--in-process", "--json", "-")
    assert done.exit_code == 0, done.output
    for step in json.loads(done.stdout)["steps"]:
        assert step["usage"]["cores"] > 0
        assert step["usage"]["memory_mb"] > 0
        assert all(
            stage["service"]["count"] >= step["answered"] for stage in step["stages"] if stage["name"] == "planner"
        )
