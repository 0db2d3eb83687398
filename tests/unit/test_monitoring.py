"""What is made of the metrics: their catalog, documentation, rules and dashboard agree with the code and each other."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import ConfigError
from contracts.trace import STAGES
from deployments.cli.app import app
from deployments.metrics import BUCKETS, PREFIX, Description
from deployments.monitoring import render
from deployments.monitoring.catalog import catalog
from deployments.monitoring.dashboard import ROWS, dashboard, queries
from deployments.monitoring.docs import dotted

ROOT = Path(__file__).parents[2]
METRICS: list[Description] = [metric for part in catalog().values() for metric in part]
GROUPS = render.rule_groups(ROOT)
RULES = [rule for group in GROUPS for rule in group["rules"]]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
ALERTS = [rule for rule in RULES if "alert" in rule]
# Ray Serve's own.
SERVES = {"ray_serve_deployment_queued_queries"}
# C40, milliseconds.
BUDGETS = {"planner": 30, "seed_search": 120, "expander": 100, "rechecker": 50, "assembler": 40}


def series() -> set[str]:
    """Names under which our metrics come."""
    return {
        name
        for metric in METRICS
        for name in (
            [f"{metric.exported}_{part}" for part in ("bucket", "sum", "count")]
            if metric.kind == "histogram"
            else [metric.exported]
        )
    }


def made() -> Iterator[str]:
    """Names of all metrics that the code makes."""
    for path in (ROOT / "deployments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                name = node.args[0]
                if node.func.id in {"Tally", "Reading", "Distribution", "Milliseconds", "InFlight"}:
                    assert isinstance(name, ast.Constant)
                    yield PREFIX + str(name.value)


def test_the_catalog_has_every_metric_once() -> None:
    """D2, C41."""
    assert sorted(metric.name for metric in METRICS) == sorted(made())
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_no_metric_bypasses_the_catalog() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "deployments").rglob("*.py")
        if re.search(r"ray\.(serve|util)[. ](import )?metrics", path.read_text(encoding="utf-8"))
    }
    assert importing == {"deployments/metrics.py"}


def test_labels_are_bounded() -> None:
    """C41: stages, corpora, codes and reasons; never an account, a user, a URI or a query."""
    assert {tag for metric in METRICS for tag in metric.tags} == {
        *("stage", "code", "outcome", "reason", "use", "method", "memory_type"),
        *("corpus", "path", "action", "result", "step", "state", "shadow"),
    }


def test_the_generated_files_are_what_they_are_made_of() -> None:
    assert render.drifted(ROOT) == []


def test_what_has_drifted_is_named_and_written_anew(tmp_path: Path) -> None:
    rules = tmp_path / render.RULES
    rules.parent.mkdir(parents=True)
    rules.write_text((ROOT / render.RULES).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "docs").mkdir()
    runner = CliRunner()
    checked = runner.invoke(app, ["metrics", "render", "--check", "--folder", str(tmp_path)])
    assert (checked.exit_code, checked.output.count("not what it is made of")) == (1, 3)
    assert runner.invoke(app, ["metrics", "render", "--write", "--folder", str(tmp_path)]).output.count("Wrote") == 3
    assert runner.invoke(app, ["metrics", "render", "--check", "--folder", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "docs/metrics.md").read_bytes() == (ROOT / "docs/metrics.md").read_bytes()


def test_outside_a_checkout_rendering_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        render.drifted(tmp_path)


def test_the_list_names_every_metric() -> None:
    runner = CliRunner()
    listed = json.loads(runner.invoke(app, ["metrics", "list", "--json"]).output)
    assert [each["exported"] for each in listed] == [metric.exported for metric in METRICS]
    assert all(metric.exported in runner.invoke(app, ["metrics", "list"]).output for metric in METRICS)


def test_rules_and_dashboard_use_only_metrics_that_there_are() -> None:
    used = {
        name
        for query in [*(str(rule["expr"]) for rule in RULES), *queries()]
        for name in re.findall(r"\bray_\w+|\bretrieval:[\w:]+", query)
    }
    assert used <= series() | RECORDED | SERVES


def test_every_name_of_the_first_seed_is_recorded() -> None:
    """C41."""
    (search,) = (group for group in GROUPS if group["name"] == "strata-search")
    assert [dotted(rule["record"]) for rule in search["rules"]] == [
        "retrieval.search_memory.qps",
        "retrieval.search_memory.p95_ms",
        "retrieval.search_memory.threshold_filtered.count",
        "retrieval.seed.hit_count",
        "retrieval.recheck.input_count",
        "retrieval.recheck.pass_count",
        "retrieval.recheck.drop_count",
        "retrieval.read.l1.count",
        "retrieval.read.l2.count",
        "retrieval.fallback.count",
    ]


def test_budgets_are_those_of_the_source_and_bounds_of_buckets() -> None:
    """C40."""
    budgets = [rule for rule in RULES if rule.get("record") == "retrieval:stage:budget_ms"]
    assert {rule["labels"]["stage"]: rule["expr"] for rule in budgets} == BUDGETS
    assert set(BUDGETS) <= set(STAGES)
    bounds = set(map(str, BUCKETS))
    assert all(rule["labels"]["le"] == str(float(rule["expr"])) in bounds for rule in budgets)
    assert '"300.0"' in "".join(str(rule["expr"]) for rule in RULES)
    assert 300 in BUCKETS


def test_every_alert_says_what_it_means_and_where_it_is_explained() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["for"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        document, anchor = rule["annotations"]["runbook"].split("#")
        _, *sections = re.split(r"^#+ ", (ROOT / document).read_text(encoding="utf-8"), flags=re.MULTILINE)
        explained = {title.lower().replace(" ", "-"): text for title, _, text in (s.partition("\n") for s in sections)}
        assert f"`{rule['alert']}`" in explained[anchor]


def test_panels_lie_side_by_side_and_none_on_another() -> None:
    cells = [
        (x, y)
        for panel in dashboard()["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} == set(range(24))
    assert len(dashboard()["panels"]) == len(ROWS) + sum(map(len, ROWS.values()))


def test_every_query_of_the_dashboard_keeps_to_the_chosen_namespace() -> None:
    texts = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    assert [text for text in texts if "$namespace" not in text] == ["retrieval:search_memory:budget_ms"]
