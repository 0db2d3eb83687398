"""``strata bench overload`` and ``soak`` against the real graph: that they measure, not what; no figure is a limit."""

import json
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from contracts.trace import STAGES
from deployments.cli.app import app
from deployments.cli.bench_targets import over_http
from deployments.cli.bench_watch import Meter
from deployments.settings import Settings
from evaluation.load.config import LoadConfig
from evaluation.load.queries import BUILT_IN
from evaluation.load.run import Plan
from evaluation.load.soak import ALL, soak
from tests.support.graph import Cluster

# No graph of one replica a stage answers 600 searches in a second; it has places for 64 at once.
TOO_MUCH = ("--saturation", "300", "--duration", "1", "--warm-up", "0", "--patience", "120", "--connections", "400")
# Any machine keeps to these, however busy.
EASY = {
    "p95_ms": {"search_memory": 1e6},
    "overload": {"min_answers": 0, "refused_p95_ms": 1e6, "back_within": 1e6, "back_s": 1e6},
}


def test_overload_is_refused_with_the_time_to_come_again_and_every_search_accounted_for(
    settings: Settings,
    cluster: Cluster,
    served: str,
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue 9, point 3: the admission of the ingress, through Serve's proxy."""
    monkeypatch.setenv("STRATA_URL", served)
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"data_dir": str(settings.data_dir), "bench": EASY}), encoding="utf-8")
    arguments = ["bench", "overload", *TOO_MUCH, "--key", token, "--config", str(config), "--json", "-"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    report = json.loads(done.stdout)
    assert done.exit_code == int(not all(check["kept"] for check in report["checks"]))
    assert [(each["rate"], each["arrivals"]) for each in report["phases"]] == [(150, 150), (600, 600), (150, 150)]
    for phase in report["phases"]:
        ended = phase["answered"] + sum(phase["refused"].values()) + sum(phase["lost"].values())
        assert ended == phase["arrivals"]
        assert phase["without_retry_after"] == 0
        assert set(phase["refused"]) <= {"429 RET-4291"}
    burst = report["phases"][1]
    assert burst["answered"] > 0
    assert burst["refused"]["429 RET-4291"] > 0
    assert burst["retry_after"][0] >= 1
    assert burst["refusal"]["count"] == burst["refused"]["429 RET-4291"]
    assert cluster.scrape().total("overloaded_count_total") >= burst["refused"]["429 RET-4291"]
    assert cluster.scrape().total("search_places") >= settings.limits.admission.least


async def test_a_soak_sees_the_memory_of_every_process(served: str, token: str) -> None:
    """Issue 9, point 3; an hour of it is no test."""
    meter = Meter(lambda: psutil.Process().children(recursive=True))
    plan = Plan(rates=(10,), seconds=6, warm_up=0.5, queries=BUILT_IN, patience=120)
    async with over_http(served, token, 64, 10, BUILT_IN[0]) as ask:
        report = await soak(served, plan, ask, meter.memory, LoadConfig(), lambda said: None)
    assert sum(each.arrivals for each in report.quarters) == 60
    assert sum(each.answered for each in report.quarters) == 60
    assert len(report.seen_s) == len(report.memory_mb[ALL]) >= 3
    assert {"ingress", *STAGES} <= report.memory_mb.keys()
    measured = {each.name for each in report.growth}
    assert {ALL, "ingress", *STAGES} <= measured
    assert {check.what for check in report.checks} >= {"growth of memory", "processes that grow"}
