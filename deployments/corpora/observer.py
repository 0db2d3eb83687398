"""What happens in corpora as metrics and logs (R7).

See ``deployments/metrics.py`` for what all metrics have in common. The hit rate of R7 is ``found_count`` over
``retrieve``, its fallback rate the share of ``retrieve`` whose outcome is degraded.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from corpora.rag.batch import Outcome
from corpora.rag.ingest_rows import State, now_ms
from corpora.rag.queue import Backlog
from corpora.rag.types import RetrieveEvent, ShadowEvent
from deployments.corpora.events import WriteEvent
from deployments.logs import json_log
from deployments.metrics import Distribution, Milliseconds, Reading, Tally

# Of changes of a corpus that is not enabled any more.
_OTHER = "?"
_OVERLAP = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999]


class CorpusLog:
    """One line of JSON an action, without any text of a request."""

    def __init__(self) -> None:
        self._log = json_log()

    def retrieved(self, event: RetrieveEvent) -> None:
        """A retrieval."""
        self._line(
            event,
            "retrieve",
            path=event.path,
            hit_count=event.hit_count,
            below_threshold=event.below_threshold,
            cache=event.cache,
            fallback_reason=list(event.fallback_reasons),
        )

    def shadowed(self, event: ShadowEvent) -> None:
        """A shadow."""
        self._log.info(
            "corpus",
            trace_id=event.trace_id,
            corpus=event.corpus,
            action="shadow",
            path=event.path,
            outcome=event.outcome,
            overlap=event.overlap,
            latency_difference_ms=event.latency_difference_ms,
        )

    def wrote(self, event: WriteEvent) -> None:
        """An ingest or a deletion."""
        self._line(event, event.action, source_count=event.sources, refused_count=event.refused)

    def _line(self, event: RetrieveEvent | WriteEvent, action: str, **more: Any) -> None:
        self._log.info(
            "corpus",
            trace_id=event.trace_id,
            account_id=event.account_id,
            corpus=event.corpus,
            action=action,
            outcome=event.outcome,
            latency_ms=round(event.latency_ms, 1),
            **more,
        )


class CorpusMetrics:
    """Counts by corpus."""

    def __init__(self) -> None:
        self._retrievals = Tally("corpus_retrieve", "Retrievals: ok, degraded or a code.", "corpus", "path", "outcome")
        self._found = Tally("corpus_found_count", "Retrievals that found something.", "corpus")
        self._ms = Milliseconds("corpus_retrieve_ms", "Duration of a retrieval in the ingress.", "corpus", "path")
        self._hits = Tally("corpus_hit_count", "Hits answered.", "corpus")
        self._below = Tally("corpus_below_threshold_count", "Candidates that the threshold kept out.", "corpus")
        self._fallback = Tally("corpus_fallback_count", "Parts left out of answers.", "corpus", "stage", "code")
        self._cache = Tally("corpus_cache_count", "Rankings from the cache: hit, miss.", "corpus", "use")
        self._shadows = Tally("corpus_shadow_count", "Shadows, by the path that answered.", "corpus", "path", "outcome")
        self._overlap = Distribution("corpus_shadow_overlap", "Share of hits that both paths have.", _OVERLAP, "corpus")
        self._difference = Milliseconds(
            "corpus_shadow_difference_ms", "How much slower or faster a shadow was.", "corpus", "shadow"
        )
        self._writes = Tally("corpus_write", "Ingests and deletions: ok or a code.", "corpus", "action", "outcome")
        self._write_ms = Milliseconds("corpus_write_ms", "Until a write was acknowledged.", "corpus", "action")
        self._sources = Tally("corpus_write_source_count", "Sources acknowledged.", "corpus", "action")

    def retrieved(self, event: RetrieveEvent) -> None:
        """A retrieval."""
        corpus = event.corpus
        self._retrievals.add(1, corpus, event.path, event.outcome)
        self._ms.add(event.latency_ms / 1000, corpus, event.path)
        self._found.add(int(event.hit_count > 0), corpus)
        self._hits.add(event.hit_count, corpus)
        self._below.add(event.below_threshold, corpus)
        for reason in event.fallback_reasons:
            stage, _, code = reason.partition(":")
            self._fallback.add(1, corpus, stage, code)
        if event.cache != "off":
            self._cache.add(1, corpus, event.cache)

    def shadowed(self, event: ShadowEvent) -> None:
        """A shadow."""
        self._shadows.add(1, event.corpus, event.path, event.outcome)
        if event.overlap is not None:
            self._overlap.add(event.overlap, event.corpus)
            slower = "slower" if event.latency_difference_ms > 0 else "faster"
            self._difference.add(abs(event.latency_difference_ms) / 1000, event.corpus, slower)

    def wrote(self, event: WriteEvent) -> None:
        """An ingest or a deletion."""
        self._writes.add(1, event.corpus, event.action, event.outcome)
        self._write_ms.add(event.latency_ms / 1000, event.corpus, event.action)
        self._sources.add(event.sources, event.corpus, event.action)


class IngestProgress:
    """What a worker does: a count and a line of JSON a try.

    Args:
        corpora: Names of the corpora.
    """

    def __init__(self, corpora: Iterable[str]) -> None:
        self._corpora = frozenset(corpora)
        self._log = json_log()
        self._tries = Tally(
            "corpus_ingest_count", "Tries of a change: done, unchanged, retry, dead.", "corpus", "result", "step"
        )
        self._ms = Milliseconds("corpus_ingest_ms", "From acknowledged to stored.", "corpus")

    def told(self, outcome: Outcome) -> None:
        """A try ended."""
        job = outcome.job
        corpus = job.corpus if job.corpus in self._corpora else _OTHER
        latency_ms = max(0, now_ms() - job.created_at)
        self._tries.add(1, corpus, outcome.result, outcome.step)
        if outcome.result in {"done", "unchanged"}:
            self._ms.add(latency_ms / 1000, corpus)
        self._log.info(
            "corpus",
            trace_id=job.request_id,
            account_id=job.account_id,
            corpus=corpus,
            action="store" if job.action == "put" else "remove",
            outcome=outcome.result,
            latency_ms=latency_ms,
            **({"step": outcome.step, "reason": outcome.reason} if outcome.reason else {}),
        )


class BacklogMetrics:
    """What is acknowledged and not done yet; told by the deployment that works on it.

    Args:
        corpora: Names of the corpora; what waits of others, once enabled, is not shown.
    """

    _STATES: Sequence[State] = ("pending", "running", "dead")

    def __init__(self, corpora: Iterable[str]) -> None:
        self._corpora = tuple(corpora)
        tags = ("corpus", "state")
        self._jobs = Reading("corpus_backlog", "Changes acknowledged and not done: pending, running, dead.", *tags)
        self._age = Reading("corpus_backlog_age_ms", "Age of the oldest of those.", *tags)

    def show(self, backlog: Sequence[Backlog]) -> None:
        """The backlog as it is now."""
        by_name = {(part.corpus, part.state): part for part in backlog}
        for corpus in self._corpora:
            for state in self._STATES:
                part = by_name.get((corpus, state))
                self._jobs.show(part.jobs if part else 0, corpus, state)
                self._age.show(part.oldest_ms if part else 0, corpus, state)
