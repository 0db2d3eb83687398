"""Metrics of the graph through Ray's exporter (D2, C41).

``docs/metrics.md`` lists all of them. It is made from what they say of themselves, here and in the ``observer.py`` of
corpora, gateway and knowledge base. On export every name gets the prefix ``ray_``, the tags deployment, replica and
application, and a counter ``_total``. Tags of our own are bounded: stage names, error codes and drop reasons, never an
account, a URI or a query. Dots of C41 are underscores; what its names mean in the end (``qps``, ``p95_ms``) is said by
the recording rules.
"""

import asyncio
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import ClassVar, Literal, NamedTuple

from ray.serve.metrics import Counter, Gauge, Histogram

from contracts.breaker import BreakerState
from contracts.hits import Level

PREFIX = "retrieval_"
# Milliseconds, close together around the budgets of C40: 30, 40, 50, 100, 120 and 300.
BUCKETS = [1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0, 120.0, 150.0, 200.0, 300.0, 500.0, 1000.0, 3000.0]
# Ray reports once a second at most.
_REPEAT_S = 0.5

_CIRCUIT: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}

Kind = Literal["counter", "gauge", "histogram"]


class Description(NamedTuple):
    """What a metric says of itself.

    Args:
        name: As it is made.
        kind: Its kind.
        tags: Its own, beside those of Serve.
        meaning: One phrase.
    """

    name: str
    kind: Kind
    tags: tuple[str, ...]
    meaning: str

    @property
    def exported(self) -> str:
        """Its name for Prometheus; of a histogram, what comes before ``_bucket``, ``_sum`` and ``_count``."""
        return f"ray_{self.name}{'_total' if self.kind == 'counter' else ''}"


class Metric:
    """A metric of ours, whose tags can't be forgotten: Ray fails on a missing one.

    Args:
        name: Without the prefix.
        meaning: Its description.
        tags: Its tags.
    """

    kind: ClassVar[Kind]

    def __init__(self, name: str, meaning: str, *tags: str) -> None:
        self.description = Description(PREFIX + name, self.kind, tags, meaning)

    def _tagged(self, values: Sequence[str]) -> dict[str, str]:
        return dict(zip(self.description.tags, values, strict=True))


class Tally(Metric):
    """A counter; see :class:`Metric`."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, *tags: str) -> None:
        super().__init__(name, meaning, *tags)
        self._counter = Counter(self.description.name, description=meaning, tag_keys=tags)

    def add(self, amount: int, *values: str) -> None:
        """Count ``amount`` under the tags' values."""
        if amount > 0:  # Ray refuses an increment of 0.
            self._counter.inc(amount, self._tagged(values))


class Reading(Metric):
    """A gauge; see :class:`Metric`.

    Ray reports what was set since its last report, and forgets it. So values are set again and again, by the event loop
    that first showed one, for as long as it runs; what changes in between costs nothing.
    """

    kind = "gauge"

    def __init__(self, name: str, meaning: str, *tags: str) -> None:
        super().__init__(name, meaning, *tags)
        self._gauge = Gauge(self.description.name, description=meaning, tag_keys=tags)
        self._latest: dict[tuple[str, ...], float] = {}
        self._repeats = False

    def show(self, value: float, *values: str) -> None:
        """The value as it is now, under the tags' values."""
        self._latest[values] = value
        if not self._repeats:
            self._gauge.set(value, self._tagged(values))
            with suppress(RuntimeError):  # No event loop, as in a command: there is nobody to report to either.
                asyncio.get_running_loop().call_later(_REPEAT_S, self._repeat, weakref.ref(self))
                self._repeats = True

    @staticmethod
    def _repeat(reference: "weakref.ref[Reading]") -> None:
        if reading := reference():
            for values, value in reading._latest.items():
                reading._gauge.set(value, reading._tagged(values))
            asyncio.get_running_loop().call_later(_REPEAT_S, Reading._repeat, reference)


class Distribution(Metric):
    """A histogram.

    Args:
        name: Without the prefix.
        meaning: Its description.
        boundaries: Of its buckets, above 0 and rising.
        tags: Its tags.
    """

    kind = "histogram"

    def __init__(self, name: str, meaning: str, boundaries: Sequence[float], *tags: str) -> None:
        super().__init__(name, meaning, *tags)
        self._histogram = Histogram(
            self.description.name, description=meaning, boundaries=list(boundaries), tag_keys=tags
        )

    def add(self, value: float, *values: str) -> None:
        """Note a value under the tags' values."""
        self._histogram.observe(value, self._tagged(values))


class Milliseconds(Distribution):
    """A histogram of durations."""

    def __init__(self, name: str, meaning: str, *tags: str) -> None:
        super().__init__(name, meaning, BUCKETS, *tags)

    def add(self, seconds: float, *values: str) -> None:
        """Note a duration, in seconds, under the tags' values."""
        super().add(seconds * 1000, *values)


class InFlight(Reading):
    """A gauge of what is under way.

    Args:
        name: Of the gauge.
        meaning: Its description.
        tags: Its tags with their values.
    """

    def __init__(self, name: str, meaning: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, meaning, *tags)
        self._values = tuple(tags.values())
        self._count = 0
        self.change(0)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Put around one piece of work."""
        self.change(1)
        try:
            yield
        finally:
            self.change(-1)

    def change(self, by: int) -> None:
        """So many more, or fewer."""
        self._count += by
        self.show(self._count, *self._values)


class StageMetrics:
    """A stage's own view of its work.

    Args:
        stage: The stage's name.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._work = Milliseconds("stage_work_ms", "A stage's own work, without the hop.", "stage")
        self._errors = Tally("stage_error_count", "Calls of a stage that raised or were cancelled.", "stage", "code")
        self._in_flight = InFlight("stage_in_flight", "Calls that a replica works on now.", {"stage": stage})

    def under_way(self) -> AbstractContextManager[None]:
        """Put around a call."""
        return self._in_flight.one()

    def work(self, seconds: float) -> None:
        """A call ended, well or not."""
        self._work.add(seconds, self._stage)

    def error(self, code: str) -> None:
        """A call raised."""
        self._errors.add(1, self._stage, code)


class RoutedMetrics:
    """How often a caller of a stage has no connection to a replica.

    Args:
        stage: The stage's name.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._routed = Tally("stage_routed_count", "Calls of a stage that went through Serve's router.", "stage")

    def routed(self) -> None:
        """A call goes through Serve's router."""
        self._routed.add(1, self._stage)


class WireMetrics:
    """What waits in front of a stage.

    Args:
        stage: The stage's name.
    """

    def __init__(self, stage: str) -> None:
        self._waiting = InFlight("stage_waiting", "Calls that wait for a place in a replica.", {"stage": stage})

    def waiting(self) -> AbstractContextManager[None]:
        """Put around the wait of a call."""
        return self._waiting.one()


class IndexMetrics:
    """A stage's view of the index.

    Args:
        stage: The stage's name.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._up = Reading("index_up", "Whether the index answered a stage that looked last: 1, else 0.", "stage")

    def answered(self, well: bool) -> None:
        """The index was asked."""
        self._up.show(int(well), self._stage)


class ModelMetrics:
    """What waits for a model, and what a cache saves it.

    Args:
        stage: The stage that has the model.
    """

    def __init__(self, stage: str) -> None:
        self._queue = InFlight("model_queue", "Requests that wait until the model is free.", {"stage": stage})
        self._cache = Tally("query_cache_count", "Query texts whose vectors a cache held, or not: hit, miss.", "use")

    def queued(self, change: int) -> None:
        """So many more wait, or fewer."""
        self._queue.change(change)

    def cached(self, hits: int, misses: int) -> None:
        """Query texts were looked up."""
        self._cache.add(hits, "hit")
        self._cache.add(misses, "miss")


class ChainMetrics:
    """The chain's view of its stages; a ``contracts.stages.Observer``."""

    def __init__(self) -> None:
        self._ms = Milliseconds("stage_ms", "A stage as the chain sees it, hop included.", "stage")
        self._in = Tally("stage_in_count", "Items into a stage.", "stage")
        self._out = Tally("stage_out_count", "Items out of a stage.", "stage")
        self._fallback = Tally("fallback_count", "Less or other than asked for was answered.", "stage", "code")
        self._seeds = Tally("seed_hit_count", "Seeds found.")
        self._recheck_input = Tally("recheck_input_count", "Candidates that the rechecker saw.")
        self._recheck_pass = Tally("recheck_pass_count", "Candidates that the rechecker let pass.")
        self._circuit = Reading("stage_circuit", "A stage's breaker: 0 closed, 1 half open, 2 open.", "stage")

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
        self._circuit.show(_CIRCUIT[state], name)


class RequestMetrics:
    """The ingress's view of its requests."""

    def __init__(self) -> None:
        self._searches = Tally("search_memory", "Searches by outcome: ok, degraded or an error code.", "outcome")
        self._ms = Milliseconds("search_memory_ms", "Duration of a search inside the ingress.")
        self._filtered = Tally("search_memory_threshold_filtered_count", "Hits below the score threshold.")
        self._drops = Tally("recheck_drop_count", "Candidates that the rechecker dropped.", "reason")
        self._read = Tally("read_memory", "Reads, batches too, by outcome: ok or an error code.", "outcome")
        self._read_ms = Milliseconds("read_memory_ms", "Duration of a read inside the ingress.")
        self._texts = {
            "L1": Tally("read_l1_count", "Overviews handed out by reads."),
            "L2": Tally("read_l2_count", "Contents handed out by reads."),
        }
        self._in_flight = InFlight("requests_in_flight", "Requests that an ingress works on now.", {})
        self._unauthenticated = Tally("unauthenticated_count", "Requests whose credentials were refused.", "reason")
        self._rate_limited = Tally("rate_limited_count", "Requests over a limit of account or key.", "reason")
        self._search_places = Reading("search_places", "Searches that an ingress takes at once, by their latency.")
        self._overloaded = Tally("overloaded_count", "Requests without a place: of searches, of requests.", "reason")

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

    def read(self, outcome: str, seconds: float) -> None:
        """A read was answered."""
        self._read.add(1, outcome)
        self._read_ms.add(seconds)

    def texts(self, level: Level, count: int) -> None:
        """Texts were handed out."""
        self._texts[level].add(count)

    def unauthenticated(self, reason: str) -> None:
        """Credentials were refused."""
        self._unauthenticated.add(1, reason)

    def rate_limited(self, reason: str) -> None:
        """A request was over a limit."""
        self._rate_limited.add(1, reason)

    def search_places(self, places: int) -> None:
        """So many searches at once are let in from now on."""
        self._search_places.show(places)

    def overloaded(self, reason: Literal["searches", "requests"]) -> None:
        """A request found no place, among those of searches or of all requests."""
        self._overloaded.add(1, reason)
