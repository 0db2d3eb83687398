"""Quantiles of histograms against those of the values, and scrapes by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.metrics import BUCKETS
from evaluation.load.quantiles import Histogram, quantiles
from evaluation.load.scrape import Scrape

BOUNDS = (*BUCKETS, math.inf)


def histogram(values: list[float]) -> Histogram:
    return Histogram.of({bound: float(sum(value <= bound for value in values)) for bound in BOUNDS})


@settings(deadline=None)
@given(
    values=st.lists(st.floats(0.001, 2999), min_size=1, max_size=300),
    q=st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]),
)
def test_a_histograms_quantile_is_in_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    """numpy's ``inverted_cdf`` is the value that at least the share ``q`` is not above."""
    true, found = float(np.quantile(values, q, method="inverted_cdf")), histogram(values)
    low, high = found.bucket(q)
    assert low < true <= high
    assert low <= found.quantile(q) <= high


def test_evenly_spread_values_have_numpys_quantiles() -> None:
    values = np.linspace(0.01, 300, 30_000)
    found = histogram(list(values)).quantiles()
    assert found
    assert found.count == 30_000
    for ms, q in ((found.p50_ms, 0.5), (found.p95_ms, 0.95), (found.p99_ms, 0.99)):
        assert ms == pytest.approx(np.quantile(values, q), rel=0.001)


@pytest.mark.parametrize(("share", "kept"), [(0.95, True), (0.94, False)])
def test_at_a_budget_that_is_a_bound_the_quantile_is_exact(share: float, kept: bool) -> None:
    """C40: budgets are bounds of buckets, so that no interpolation decides whether they hold."""
    values = [29.9] * round(1000 * share) + [31.0] * round(1000 * (1 - share))
    assert (histogram(values).quantile(0.95) <= 30) is kept


def test_beyond_the_last_bound_that_bound_is_told() -> None:
    assert histogram([9999.0]).quantile(0.95) == BUCKETS[-1]


def test_nothing_has_no_quantiles() -> None:
    assert histogram([]).quantiles() is None
    assert Histogram.of({}).quantiles() is None
    assert quantiles([]) is None


def exposed(counts: dict[str, tuple[int, int]], replica: str = "a") -> str:
    """Two buckets and a count a stage."""
    lines = []
    for stage, (quick, all_) in counts.items():
        labels = f'stage="{stage}",replica="{replica}"'
        lines += [
            f'ray_retrieval_stage_ms_bucket{{{labels},le="30.0"}} {quick}',
            f'ray_retrieval_stage_ms_bucket{{{labels},le="+Inf"}} {all_}',
            f"ray_retrieval_stage_ms_count{{{labels}}} {all_}",
        ]
    return "\n".join(["# HELP x y", 'ray_other{a="b"} 1', *lines])


def test_growth_is_that_between_two_looks_over_all_replicas_and_nodes() -> None:
    before = Scrape.parse([exposed({"planner": (10, 10)}), exposed({"planner": (1, 2)}, "b")], "ray_retrieval_")
    after = Scrape.parse([exposed({"planner": (30, 40)}), exposed({"planner": (1, 5)}, "b")], "ray_retrieval_")
    grown = after.since(before)
    assert grown.total("ray_retrieval_stage_ms_count", stage="planner") == 33
    assert grown.total("ray_retrieval_stage_ms_count", stage="embedder") == 0
    assert grown.histogram("ray_retrieval_stage_ms", stage="planner") == Histogram((30.0, math.inf), (20.0, 33.0))
    assert {name for name, _ in after.samples} == {"ray_retrieval_stage_ms_bucket", "ray_retrieval_stage_ms_count"}


def test_a_replica_that_began_anew_counts_from_nothing() -> None:
    before, after = (Scrape.parse([exposed({"planner": counts})], "ray_") for counts in ((90, 100), (3, 4)))
    assert after.since(before).histogram("ray_retrieval_stage_ms").counts == (3.0, 4.0)


def test_buckets_of_the_metrics_rise() -> None:
    assert all(low < high for low, high in pairwise(BUCKETS))
