"""Quantiles of times, from the times themselves or from a histogram's buckets."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

_QUANTILES = (0.50, 0.95, 0.99)


class Quantiles(msgspec.Struct, frozen=True):
    """How long something took, milliseconds.

    Args:
        count: Times behind the figures.
        p50_ms: Median.
        p95_ms: 95th percentile.
        p99_ms: 99th percentile.
    """

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


def quantiles(ms: Sequence[float]) -> Quantiles | None:
    """Quantiles of times in milliseconds; ``None`` of none."""
    if not ms:
        return None
    return Quantiles(len(ms), *(round(float(each), 2) for each in np.quantile(ms, _QUANTILES)))


class Histogram(msgspec.Struct, frozen=True):
    """Buckets as Prometheus has them.

    Args:
        bounds: Upper bounds, included; rising, the last one infinite.
        counts: How many were not above each bound.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @classmethod
    def of(cls, buckets: Mapping[float, float]) -> "Histogram":
        """From counts by bound, in any order."""
        bounds = tuple(sorted(buckets))
        return cls(bounds, tuple(buckets[bound] for bound in bounds))

    @property
    def count(self) -> float:
        """All that was noted."""
        return self.counts[-1] if self.counts else 0.0

    def bucket(self, q: float) -> tuple[float, float]:
        """The bounds that the quantile lies between, the lower one excluded; for ``0 < q ≤ 1`` of a count above 0."""
        at = bisect_left(self.counts, q * self.count)
        return (self.bounds[at - 1] if at else 0.0), self.bounds[at]

    def quantile(self, q: float) -> float:
        """The quantile, as if the values of a bucket were spread evenly in it.

        Beyond the last finite bound nothing is known, and that bound is the answer, as in ``histogram_quantile`` of
        Prometheus. At a bound the quantile is exact.
        """
        low, high = self.bucket(q)
        if math.isinf(high):
            return low
        at = self.bounds.index(high)
        below = self.counts[at - 1] if at else 0.0
        return low + (high - low) * (q * self.count - below) / (self.counts[at] - below)

    def quantiles(self) -> Quantiles | None:
        """The usual ones; ``None`` when nothing was noted."""
        if not self.count:
            return None
        return Quantiles(round(self.count), *(round(self.quantile(q), 2) for q in _QUANTILES))
