"""The Grafana dashboard, as code; what it shows are the recording rules wherever there is one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_HERE = 'namespace=~"$namespace"'
_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3
# Of the JSON: what Grafana 10 and later read without a migration.
_SCHEMA = 39


class Panel(NamedTuple):
    """One graph.

    Args:
        title: Above it.
        queries: PromQL by the legend of its lines.
        unit: Grafana's name of it.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"


def _rule(name: str) -> str:
    return f"{name}{{{_HERE}}}"


def _rate(counter: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate(ray_retrieval_{counter}_total{{{_HERE}}}[5m]))"


def _p95(histogram: str, *by: str) -> str:
    buckets = f"rate(ray_retrieval_{histogram}_bucket{{{_HERE}}}[5m])"
    return f"histogram_quantile(0.95, sum by ({', '.join((*by, 'le'))}) ({buckets}))"


ROWS: Mapping[str, Sequence[Panel]] = {
    "Searches and reads": [
        Panel("Searches by outcome", {"{{outcome}}": _rate("search_memory", "outcome")}, "reqps"),
        Panel(
            "Search P95 and its budget",
            {"P95": _rule("retrieval:search_memory:p95_ms"), "budget": "retrieval:search_memory:budget_ms"},
            "ms",
        ),
        Panel(
            "Shares of searches",
            {
                "degraded": _rule("retrieval:search_memory:degraded:ratio_rate5m"),
                "failed": _rule("retrieval:search_memory:failed:ratio_rate5m"),
                "over budget, 5 min": _rule("retrieval:search_memory:over_budget:ratio_rate5m"),
                "over budget, 1 h": _rule("retrieval:search_memory:over_budget:ratio_rate1h"),
            },
            "percentunit",
        ),
        Panel(
            "From seeds to hits",
            {
                "seeds": _rule("retrieval:seed:hit_count:rate5m"),
                "into the recheck": _rule("retrieval:recheck:input_count:rate5m"),
                "past the recheck": _rule("retrieval:recheck:pass_count:rate5m"),
                "dropped: {{reason}}": _rule("retrieval:recheck:drop_count:rate5m"),
                "below the threshold": _rule("retrieval:search_memory:threshold_filtered:count:rate5m"),
            },
            "cps",
        ),
        Panel(
            "Reads",
            {
                "{{outcome}}": _rate("read_memory", "outcome"),
                "L1 texts": _rule("retrieval:read:l1:count:rate5m"),
                "L2 texts": _rule("retrieval:read:l2:count:rate5m"),
            },
            "reqps",
        ),
        Panel("Read P95", {"P95": _rule("retrieval:read_memory:p95_ms")}, "ms"),
    ],
    "Stages": [
        Panel("P95 by stage", {"{{stage}}": _rule("retrieval:stage:p95_ms")}, "ms"),
        Panel(
            "Calls over the stage's budget",
            {"{{stage}}": _rule("retrieval:stage:over_budget:ratio_rate5m")},
            "percentunit",
        ),
        Panel("Fallbacks", {"{{stage}} {{code}}": _rule("retrieval:fallback:count:rate5m")}, "cps"),
        Panel("Errors in replicas", {"{{stage}} {{code}}": _rate("stage_error_count", "stage", "code")}, "cps"),
        Panel("Breakers: 0 closed, 1 half open, 2 open", {"{{stage}}": _rule("retrieval:stage:circuit")}),
        Panel("The index answers: 1, or 0", {"{{stage}}": _rule("retrieval:index:up")}),
    ],
    "Queues, caches, refusals": [
        Panel(
            "Under way",
            {
                "requests": f"sum(ray_retrieval_requests_in_flight{{{_HERE}}})",
                "{{stage}}": _rule("retrieval:stage:in_flight"),
            },
        ),
        Panel(
            "Waiting",
            {
                "for a replica: {{deployment}}": _rule("retrieval:deployment:queued"),
                "for the model: {{stage}}": _rule("retrieval:model:queued"),
            },
        ),
        Panel(
            "Cache hits",
            {
                "query vectors": _rule("retrieval:query_cache:hit:ratio_rate5m"),
                "rankings: {{corpus}}": _rule("retrieval:corpus:cache_hit:ratio_rate5m"),
            },
            "percentunit",
        ),
        Panel(
            "Refused",
            {
                "{{reason}}": " or ".join(
                    _rate(counter, "reason") for counter in ("unauthenticated_count", "rate_limited_count")
                ),
                "no place: {{reason}}": _rule("retrieval:overloaded:count:rate5m"),
            },
            "reqps",
        ),
        Panel(
            "Searches at once",
            {
                "places": _rule("retrieval:search_memory:places"),
                "requests under way": f"sum(ray_retrieval_requests_in_flight{{{_HERE}}})",
            },
        ),
    ],
    "Corpora": [
        Panel("Retrievals", {"{{corpus}}": _rule("retrieval:corpus:qps")}, "reqps"),
        Panel("Retrieval P95", {"{{corpus}}": _rule("retrieval:corpus:p95_ms")}, "ms"),
        Panel(
            "Shares of retrievals",
            {
                "{{corpus}}: found something": _rule("retrieval:corpus:hit:ratio_rate5m"),
                "{{corpus}}: degraded": _rule("retrieval:corpus:fallback:ratio_rate5m"),
            },
            "percentunit",
        ),
        Panel("Backlog", {"{{corpus}} {{state}}": _rule("retrieval:corpus:backlog")}),
        Panel("Age of the oldest change", {"{{corpus}} {{state}}": _rule("retrieval:corpus:backlog:age_ms")}, "ms"),
        Panel("From acknowledged to stored, P95", {"{{corpus}}": _p95("corpus_ingest_ms", "corpus")}, "ms"),
        Panel("Changes tried", {"{{corpus}} {{result}}": _rate("corpus_ingest_count", "corpus", "result")}, "cps"),
    ],
    "Memory gateway": [
        Panel("Searches by outcome", {"{{method}} {{outcome}}": _rate("gateway_search", "method", "outcome")}, "reqps"),
        Panel("Search P95", {"{{method}}": _p95("gateway_search_ms", "method")}, "ms"),
        Panel("Users not let in", {"{{reason}}": _rate("gateway_login_refused_count", "reason")}, "reqps"),
    ],
    "Knowledge base": [
        Panel("Searches by outcome", {"{{outcome}}": _rate("kb_search", "outcome")}, "reqps"),
        Panel("Search P95", {"P95": _rule("retrieval:kb:p95_ms")}, "ms"),
        Panel(
            "Shares of searches",
            {
                "found nothing": _rule("retrieval:kb:gap:ratio_rate5m"),
                "degraded": _rule("retrieval:kb:degraded:ratio_rate5m"),
                "failed": _rule("retrieval:kb:failed:ratio_rate5m"),
            },
            "percentunit",
        ),
        Panel(
            "Entities whose index is behind",
            {"waiting": _rule("retrieval:kb:behind"), "failed before": _rule("retrieval:kb:behind_failing")},
        ),
        Panel("Age of the oldest of them", {"age": _rule("retrieval:kb:behind:age_ms")}, "ms"),
    ],
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "strata",
        "title": "Strata",
        "tags": ["strata"],
        "schemaVersion": _SCHEMA,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "namespace",
                    "type": "query",
                    "datasource": _DATASOURCE,
                    "query": "label_values(ray_retrieval_requests_in_flight, namespace)",
                    "refresh": 2,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(_placed(), start=1)],
    }


def queries() -> list[str]:
    """Every query of the dashboard, over all namespaces."""
    panels = (panel for row in ROWS.values() for panel in row)
    return [query.replace("$namespace", ".*") for panel in panels for query in panel.queries.values()]


_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _placed() -> Iterator[dict[str, Any]]:
    y = 0
    for title, panels in ROWS.items():
        yield {"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "collapsed": False}
        y += 1
        for at, panel in enumerate(panels):
            row, column = divmod(at, _PER_ROW)
            place = {"x": column * _WIDTH, "y": y + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield {**_graph(panel), "gridPos": place}
        y += -(-len(panels) // _PER_ROW) * _HEIGHT


def _graph(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }
