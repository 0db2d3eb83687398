"""Metrics of the graph through Ray's exporter (D2, C41).

Every name gets the prefix ``ray_`` and the tags deployment, replica and application on export; counters end in
``_total``. Tags of our own are bounded: stage names, error codes and drop reasons, never an account, a URI or a query.
Dots of C41 are underscores; ``qps`` and ``p95_ms`` are what Prometheus makes of the first two.

=================================================  ==========  ===========  ============================================
name                                               kind        tags         meaning
=================================================  ==========  ===========  ============================================
retrieval_search_memory                            counter     outcome      searches: ok, degraded, or an error code
retrieval_search_memory_ms                         histogram                duration of a search inside the ingress
retrieval_search_memory_threshold_filtered_count   counter                  hits below the score threshold
retrieval_seed_hit_count                           counter                  seeds found
retrieval_recheck_input_count                      counter                  candidates that the rechecker saw
retrieval_recheck_pass_count                       counter                  candidates it let pass
retrieval_recheck_drop_count                       counter     reason       candidates it dropped
retrieval_read_l1_count, retrieval_read_l2_count   counter                  texts handed out by reads
retrieval_fallback_count                           counter     stage, code  less or other than asked for was answered
retrieval_stage_ms                                 histogram   stage        a stage as the chain sees it, hop included
retrieval_stage_in_count, …_out_count              counter     stage        items into and out of a stage
retrieval_stage_work_ms                            histogram   stage        a stage's own work, without the hop
retrieval_stage_error_count                        counter     stage, code  calls that raised or were cancelled
retrieval_stage_in_flight                          gauge       stage        calls that a replica works on now
retrieval_stage_circuit                            gauge       stage        a breaker: 0 closed, 1 half open, 2 open
retrieval_requests_in_flight                       gauge                    requests that an ingress works on now
retrieval_unauthenticated_count                    counter     reason       requests whose credentials were refused
retrieval_rate_limited_count                       counter     reason       requests over a limit of account or key
=================================================  ==========  ===========  ============================================
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from ray.serve.metrics import Counter, Gauge, Histogram

from contracts.breaker import BreakerState
from contracts.hits import Level

# Milliseconds, close together around the budgets of C40: 30, 40, 50, 100, 120 and 300.
BUCKETS = [1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0, 120.0, 150.0, 200.0, 300.0, 500.0, 1000.0, 3000.0]

_CIRCUIT: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


class _Counter:
    """A counter whose tags can't be forgotten: Ray fails on a missing one."""

    def __init__(self, name: str, meaning: str, *tags: str) -> None:
        self._counter = Counter(f"retrieval_{name}", description=meaning, tag_keys=tags)
        self._tags = tags

    def add(self, amount: int, *values: str) -> None:
        """Count ``amount`` under the tags' values."""
        if amount > 0:  # Ray refuses an increment of 0.
            self._counter.inc(amount, dict(zip(self._tags, values, strict=True)))


class _Milliseconds:
    """A histogram of durations."""

    def __init__(self, name: str, meaning: str, *tags: str) -> None:
        self._histogram = Histogram(f"retrieval_{name}", description=meaning, boundaries=BUCKETS, tag_keys=tags)
        self._tags = tags

    def add(self, seconds: float, *values: str) -> None:
        """Note a duration under the tags' values."""
        self._histogram.observe(seconds * 1000, dict(zip(self._tags, values, strict=True)))


class _InFlight:
    """A gauge of what is under way.

    Args:
        name: Of the gauge.
        meaning: Its description.
        tags: Its tags with their values.
    """

    def __init__(self, name: str, meaning: str, tags: Mapping[str, str]) -> None:
        self._gauge = Gauge(f"retrieval_{name}", description=meaning, tag_keys=tuple(tags))
        self._tags = dict(tags)
        self._count = 0
        self._add(0)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Put around one piece of work."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, change: int) -> None:
        self._count += change
        self._gauge.set(self._count, self._tags)


class StageMetrics:
    """A stage's own view of its work.

    Args:
        stage: The stage's name.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._work = _Milliseconds("stage_work_ms", "A stage's own work, without the hop.", "stage")
        self._errors = _Counter("stage_error_count", "Calls of a stage that raised or were cancelled.", "stage", "code")
        self._in_flight = _InFlight("stage_in_flight", "Calls that a replica works on now.", {"stage": stage})

    def under_way(self) -> AbstractContextManager[None]:
        """Put around a call."""
        return self._in_flight.one()

    def work(self, seconds: float) -> None:
        """A call ended, well or not."""
        self._work.add(seconds, self._stage)

    def error(self, code: str) -> None:
        """A call raised."""
        self._errors.add(1, self._stage, code)


class ChainMetrics:
    """The chain's view of its stages; a ``contracts.stages.Observer``."""

    def __init__(self) -> None:
        self._ms = _Milliseconds("stage_ms", "A stage as the chain sees it, hop included.", "stage")
        self._in = _Counter("stage_in_count", "Items into a stage.", "stage")
        self._out = _Counter("stage_out_count", "Items out of a stage.", "stage")
        self._fallback = _Counter("fallback_count", "Less or other than asked for was answered.", "stage", "code")
        self._seeds = _Counter("seed_hit_count", "Seeds found.")
        self._recheck_input = _Counter("recheck_input_count", "Candidates that the rechecker saw.")
        self._recheck_pass = _Counter("recheck_pass_count", "Candidates that the rechecker let pass.")
        self._circuit = Gauge(
            "retrieval_stage_circuit", description="A breaker: 0 closed, 1 half open, 2 open.", tag_keys=("stage",)
        )

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        """A stage answered."""
        self._ms.add(seconds, name)
        self._in.add(items_in, name)
        self._out.add(items_out, name)
        if name == "seed_search":
            self._seeds.add(items_out)
        if name == "rechecker":
            self._recheck_input.add(items_in)
            self._recheck_pass.add(items_out)

    def fallback(self, name: str, code: str) -> None:
        """Less than was asked for, or something else, was answered for a stage."""
        self._fallback.add(1, name, code)

    def circuit(self, name: str, state: BreakerState) -> None:
        """A stage's circuit breaker stands so now."""
        self._circuit.set(_CIRCUIT[state], {"stage": name})


class RequestMetrics:
    """The ingress's view of its requests."""

    def __init__(self) -> None:
        self._searches = _Counter("search_memory", "Searches by outcome: ok, degraded or an error code.", "outcome")
        self._ms = _Milliseconds("search_memory_ms", "Duration of a search inside the ingress.")
        self._filtered = _Counter("search_memory_threshold_filtered_count", "Hits below the score threshold.")
        self._drops = _Counter("recheck_drop_count", "Candidates that the rechecker dropped.", "reason")
        self._reads = {
            "L1": _Counter("read_l1_count", "Overviews handed out by reads."),
            "L2": _Counter("read_l2_count", "Contents handed out by reads."),
        }
        self._in_flight = _InFlight("requests_in_flight", "Requests that an ingress works on now.", {})
        self._unauthenticated = _Counter("unauthenticated_count", "Requests whose credentials were refused.", "reason")
        self._rate_limited = _Counter("rate_limited_count", "Requests over a limit of account or key.", "reason")

    def under_way(self) -> AbstractContextManager[None]:
        """Put around a request."""
        return self._in_flight.one()

    def search(self, outcome: str, seconds: float) -> None:
        """A search was answered."""
        self._searches.add(1, outcome)
        self._ms.add(seconds)

    def filtered(self, count: int) -> None:
        """Hits fell below the threshold."""
        self._filtered.add(count)

    def dropped(self, reason: str, count: int) -> None:
        """The rechecker dropped candidates."""
        self._drops.add(count, reason)

    def read(self, level: Level, count: int) -> None:
        """Texts were handed out."""
        self._reads[level].add(count)

    def unauthenticated(self, reason: str) -> None:
        """Credentials were refused."""
        self._unauthenticated.add(1, reason)

    def rate_limited(self, reason: str) -> None:
        """A request was over a limit."""
        self._rate_limited.add(1, reason)
