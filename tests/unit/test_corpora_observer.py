"""Metrics and log lines of corpora."""

import json
import logging
from typing import Any

import pytest

from corpora.rag.batch import Outcome
from corpora.rag.jobs import Job
from corpora.rag.queue import Backlog
from corpora.rag.types import RetrieveEvent, ShadowEvent
from deployments.corpora.events import Everyone, WriteEvent
from deployments.corpora.observer import BacklogMetrics, CorpusLog, CorpusMetrics, IngestProgress

RETRIEVED = RetrieveEvent("t1", "acme", "memory", "rag", "degraded", 12.34, 2, 5, ("reranker:RET-5004",), "miss")
SHADOWED = ShadowEvent("t2", "memory", "rag", "ok", 0.5, -3.0)
WROTE = WriteEvent("t3", "acme", "web", "ingest_batch", "ok", 1.0, sources=3, refused=1)
JOB = Job(1, "acme", "memory", "memory.ann", "s", "k", "put", 1, 0, "t4", payload=b"secret words")


class FakeMetric:
    """A metric of Ray that remembers."""

    def __init__(self, name: str, **_: Any) -> None:
        self.name = name
        self.seen: list[tuple[float, dict[str, str]]] = []
        METRICS[name] = self

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.seen.append((value, tags))

    inc = observe = set


METRICS: dict[str, FakeMetric] = {}


@pytest.fixture(autouse=True)
def metrics(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeMetric]:
    METRICS.clear()
    for kind in ("Counter", "Histogram", "Gauge"):
        monkeypatch.setattr(f"deployments.metrics.{kind}", FakeMetric)
    return METRICS


def test_every_action_is_one_line_with_the_fields_of_r7(caplog: pytest.LogCaptureFixture) -> None:
    """R7: trace_id, corpus, action, fallback_reason, latency_ms, hit_count; never a text."""
    log = Everyone(CorpusLog())
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        log.retrieved(RETRIEVED)
        log.shadowed(SHADOWED)
        log.wrote(WROTE)
        IngestProgress(["memory"]).told(Outcome(JOB, "retry", "embed", "RET-5004: down"))
    retrieve, shadow, write, store = (json.loads(record.getMessage()) for record in caplog.records)
    assert retrieve | {"event": "corpus", "trace_id": "t1", "corpus": "memory", "action": "retrieve"} == retrieve
    assert (retrieve["fallback_reason"], retrieve["hit_count"]) == (["reranker:RET-5004"], 2)
    assert (retrieve["latency_ms"], retrieve["cache"]) == (12.3, "miss")
    assert (shadow["action"], shadow["overlap"], shadow["latency_difference_ms"]) == ("shadow", 0.5, -3.0)
    assert (write["action"], write["source_count"], write["refused_count"]) == ("ingest_batch", 3, 1)
    assert (store["action"], store["outcome"], store["trace_id"], store["step"]) == ("store", "retry", "t4", "embed")
    assert "secret" not in caplog.text


def test_a_retrieval_is_counted_by_corpus_with_what_it_lacked(metrics: dict[str, FakeMetric]) -> None:
    CorpusMetrics().retrieved(RETRIEVED)
    seen = {name.removeprefix("retrieval_corpus_"): metric.seen for name, metric in metrics.items() if metric.seen}
    assert seen == {
        "retrieve": [(1, {"corpus": "memory", "path": "rag", "outcome": "degraded"})],
        "retrieve_ms": [(pytest.approx(12.34), {"corpus": "memory", "path": "rag"})],
        "found_count": [(1, {"corpus": "memory"})],
        "hit_count": [(2, {"corpus": "memory"})],
        "below_threshold_count": [(5, {"corpus": "memory"})],
        "fallback_count": [(1, {"corpus": "memory", "stage": "reranker", "code": "RET-5004"})],
        "cache_count": [(1, {"corpus": "memory", "use": "miss"})],
    }


@pytest.mark.parametrize(("difference", "shadow"), [(-3.0, "faster"), (4.0, "slower")])
def test_a_shadow_is_compared_in_both_directions(
    metrics: dict[str, FakeMetric], difference: float, shadow: str
) -> None:
    """R8: overlap and latency; histograms hold no negative numbers."""
    CorpusMetrics().shadowed(ShadowEvent("t", "web", "rag", "ok", 0.5, difference))
    assert metrics["retrieval_corpus_shadow_overlap"].seen == [(0.5, {"corpus": "web"})]
    ((value, tags),) = metrics["retrieval_corpus_shadow_difference_ms"].seen
    assert (value, tags) == (pytest.approx(abs(difference)), {"corpus": "web", "shadow": shadow})


def test_only_enabled_corpora_are_labels(metrics: dict[str, FakeMetric]) -> None:
    """What is left in the queue of a corpus that is switched off has no label of its own."""
    IngestProgress(["web"]).told(Outcome(JOB, "done"))
    ((_, tags),) = metrics["retrieval_corpus_ingest_count"].seen
    assert tags == {"corpus": "?", "result": "done", "step": ""}
    BacklogMetrics(["web"]).show([Backlog("web", "dead", 3, 9), Backlog("memory", "pending", 7, 7)])
    shown = {(tags["corpus"], tags["state"]): value for value, tags in metrics["retrieval_corpus_backlog"].seen}
    assert shown == {("web", "pending"): 0, ("web", "running"): 0, ("web", "dead"): 3}
