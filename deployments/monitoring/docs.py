"""``docs/metrics.md``, made of what the metrics say of themselves and of the rules."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deployments.metrics import BUCKETS, Description

Group = Mapping[str, Any]

_HEAD = """# Metrics

<!-- Made by `strata metrics render --write`; changes belong into the code and k8s/components/monitoring/rules.yaml. -->

Ray's exporter on every node shows them to Prometheus: on a machine of one's own at `ray.metrics_port` of the settings,
in Kubernetes at the port `metrics` of every pod. `k8s/components/monitoring/` holds what is made of them:

| file | |
|---|---|
| `rules.yaml` | recording rules and alerts, as plain Prometheus takes them (`rule_files`) |
| `rules.test.yaml` | their tests: `promtool test rules rules.test.yaml` |
| `podmonitor.yaml`, `generated/prometheusrule.yaml` | what to scrape, and the rules, for the Prometheus operator |
| `generated/dashboard.json` | the Grafana dashboard, made by `deployments/monitoring/dashboard.py` |

Every metric has, beside its own labels, those of Serve (`deployment`, `replica`, `application`) and of Ray (`NodeId`,
`WorkerId` and such). No label holds an account, a user, a URI or a query: they are names of stages, corpora and
reasons, and codes of errors, so that the number of series is bounded. A gauge of a replica that is gone disappears
after two report intervals of Ray (20 seconds).

`strata metrics list` prints what follows.
"""
_HISTOGRAMS = """A histogram is exported as `_bucket`, `_sum` and `_count`. Durations are milliseconds, in buckets
up to {buckets}.
A call of a stage that fails or runs out of time is not in `ray_retrieval_stage_ms` but in
`ray_retrieval_fallback_count_total`.
"""
_RULES = """## Recording rules

Those of `strata-search` are the names of seed 1, with colons for dots; the counts among them are per second over five
minutes. All keep the label `namespace`, where Prometheus gives one.
"""
_ALERTS = """## Alerts

What to do about each: [operations](operations.md).
"""


def markdown(catalog: Mapping[str, Sequence[Description]], groups: Iterable[Group]) -> str:
    """The whole document.

    Args:
        catalog: The metrics by part of the product.
        groups: Of the rules.
    """
    return "\n".join([_HEAD, *_metrics(catalog), *_recorded(groups), *_alerts(groups)])


def dotted(record: str) -> str:
    """The name that seed 1 gives what a rule of ``strata-search`` records."""
    return record.removesuffix(":rate5m").replace(":", ".")


def _metrics(catalog: Mapping[str, Sequence[Description]]) -> Iterator[str]:
    for part, metrics in catalog.items():
        rows = ((_code(m.exported), m.kind, ", ".join(map(_code, m.tags)), m.meaning.rstrip(".")) for m in metrics)
        yield from (f"## {part}", "", *_table(("metric", "kind", "labels", "meaning"), rows), "")
    yield _HISTOGRAMS.format(buckets=", ".join(f"{bound:g}" for bound in BUCKETS))


def _recorded(groups: Iterable[Group]) -> Iterator[str]:
    yield _RULES
    for group in groups:
        rules = [rule for rule in group["rules"] if "record" in rule]
        if not rules:
            continue
        seed = group["name"] == "strata-search"
        columns = ("name in seed 1", "rule", "is") if seed else ("rule", "is")
        rows = (
            ([_code(dotted(rule["record"]))] if seed else [])
            + [_code(rule["record"] + _labels(rule)), _code(" ".join(str(rule["expr"]).split()))]
            for rule in rules
        )
        yield from (f"`{group['name']}`", "", *_table(columns, rows), "")


def _labels(rule: Group) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in rule.get("labels", {}).items())
    return f"{{{labels}}}" if labels else ""


def _alerts(groups: Iterable[Group]) -> Iterator[str]:
    rows = (
        (
            f"[{rule['alert']}]({rule['annotations']['runbook'].removeprefix('docs/')})",
            rule["labels"]["severity"],
            _code(" ".join(rule["expr"].split())) + f" for {rule['for']}",
        )
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    )
    yield from (_ALERTS, *_table(("alert", "severity", "when"), rows), "")


def _table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """As code in a cell, whose bars would end it."""
    return f"`{text}`".replace("|", r"\|")
