"""``strata eval growth`` on both backends, nothing left behind; and ``strata eval cost`` on what it wrote."""

import json
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from contracts.trace import STAGES
from deployments.cli import eval_growth
from deployments.cli.app import app


def growth(folder: Path, url: str, *arguments: str) -> Result:
    config = folder / "config.yaml"
    settings = {"data_dir": str(folder / "data"), "index": {"elastic": {"connection": {"hosts": [url]}}}}
    config.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    shape = ("--tenants", "3", "--fan-out", "5", "--dimensions", "16")
    asked = ("--queries", "2", "--warm-up", "1", "--config", str(config))
    return CliRunner().invoke(app, ["eval", "growth", *shape, *asked, *arguments])


def bench_indices(url: str) -> set[str]:
    return {row["index"] for row in httpx.get(f"{url}/_cat/indices/bench-*?format=json").json()}


def check(each: dict[str, Any], records: int) -> None:
    assert each["ingest"]["rows"] == each["point"]["forest"]["records"] == records
    assert each["ingest"]["bytes"] > 0
    search = each["search"]
    assert search["total"]["count"] == 2
    assert list(search["stages"]) == list(STAGES)
    assert search["hits"] == 10
    assert search["degraded"] == 0
    assert search["rss_mb"] > 0


def test_every_point_is_measured_on_both_backends_and_everything_removed(
    elasticsearch_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 9: growth on both backends."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before, figures = bench_indices(elasticsearch_url), tmp_path / "figures.json"
    done = growth(tmp_path, elasticsearch_url, "--records", "200,300", "--depth", "3", "--json", str(figures))
    assert done.exit_code == 0, done.output
    report = json.loads(figures.read_text())
    assert report["left"] == 0
    found = [(each["point"]["varied"], each["backend"], each["ingest"]["rows"]) for each in report["measured"]]
    assert found == [
        ("base", "embedded", 200),
        ("base", "elasticsearch", 200),
        ("records", "embedded", 300),
        ("records", "elasticsearch", 300),
    ]
    for each in report["measured"]:
        check(each, each["ingest"]["rows"])
        nodes = each["search"]["nodes"]
        assert len(nodes) == (each["backend"] == "elasticsearch")
        assert all(node["rss_mb"] > node["heap_mb"] / 2 > 0 for node in nodes)
    assert bench_indices(elasticsearch_url) == before
    assert list(scratch.iterdir()) == []


def test_an_interrupted_run_keeps_what_it_measured_and_prices_follow_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 9: cost per million searches for a cluster of N nodes, from what was measured."""
    figures, measure = tmp_path / "figures.json", eval_growth._measure
    whole = iter([True, False])

    async def interrupted(*arguments: Any) -> Any:
        if next(whole):
            return await measure(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(eval_growth, "_measure", interrupted)
    options = ("--backend", "embedded", "--records", "100", "--depth", "2,3", "--json", str(figures))
    assert growth(tmp_path, "http://127.0.0.1:9", *options).exit_code != 0
    report = json.loads(figures.read_text())
    assert report["left"] == 1
    (each,) = report["measured"]
    check(each, 100)

    priced = ["eval", "cost", str(figures), "--core-hour", "1", "--cores", "4", "--rest-cpu-ms", "5", "--json"]
    done = CliRunner().invoke(app, [*priced, "--nodes", "2", "--nodes", "3", "--spare", "1", "--copies", "2"])
    assert done.exit_code == 0, done.output
    two, three = json.loads(done.stdout)
    assert (two["backend"], two["nodes"]["count"], three["nodes"]["count"]) == ("embedded", 2, 3)
    search = each["search"]
    cpu_ms = 5 + search["other_cpu_ms"] + sum(stage["cpu_ms"] for stage in search["stages"].values())
    assert two["cost"]["searches_per_second"] == pytest.approx(4 * 0.5 * 1000 / cpu_ms)
    assert three["cost"]["per_million"] == pytest.approx(two["cost"]["per_million"] * 3 / 4)
    shown = CliRunner().invoke(app, ["eval", "cost", str(figures), "--core-hour", "1", "--nodes", "2"])
    assert "searches/s" in shown.stdout


def test_a_file_without_figures_is_refused_with_a_remedy(tmp_path: Path) -> None:
    empty = tmp_path / "figures.json"
    empty.write_text("{}")
    done = CliRunner().invoke(app, ["eval", "cost", str(empty), "--core-hour", "1", "--nodes", "1"])
    assert done.exit_code == 1
    assert "strata eval growth" in done.stderr


@pytest.mark.parametrize("numbers", ["", "1,x", "0", "3,-1"])
def test_values_that_are_no_numbers_above_0_are_refused(numbers: str, tmp_path: Path) -> None:
    done = growth(tmp_path, "http://127.0.0.1:9", "--records", numbers)
    assert done.exit_code == 2
    assert "--records" in done.stderr
