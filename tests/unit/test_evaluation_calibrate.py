"""Curves from scores to relevance, fitted on judged queries (R3)."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import InvalidInput
from evaluation.calibrate import Judged, fit, judge, report
from evaluation.datasets import load
from evaluation.runner import prepared
from models.deterministic import DeterministicEmbedder
from stages.scoring import Weights
from tests.unit.test_evaluation_runner import PARTS, records

__all__ = ["records"]


def normal(dataset: str, count: int, relevant: float, irrelevant: float, spread: float = 0.1) -> Judged:
    draw = np.random.default_rng(1)
    return Judged(
        dataset,
        list(draw.normal(relevant, spread, count)),
        list(draw.normal(irrelevant, spread, 20 * count)),
    )


def test_two_bells_of_one_width_give_the_curve_that_theory_says() -> None:
    """For normal classes of equal weight and width s, slope = (m1 - m0) / s² and midpoint = (m1 + m0) / 2."""
    curve = fit([normal("set", 20_000, 0.6, 0.4)])
    assert curve.slope == pytest.approx(20, rel=0.05)
    assert curve.midpoint == pytest.approx(0.5, abs=0.005)


def test_that_irrelevant_hits_are_many_moves_nothing() -> None:
    few = fit([Judged("set", [0.5, 0.7], [0.3, 0.6])])
    many = fit([Judged("set", [0.5, 0.7], [0.3, 0.6] * 50)])
    assert few == many


def test_a_set_weighs_no_more_than_another_however_large() -> None:
    one, other = Judged("one", [0.5, 0.7], [0.3, 0.6]), Judged("other", [0.8, 0.6], [0.5, 0.7])
    large = Judged("other", other.relevant * 30, other.irrelevant * 30)
    assert fit([one, other]) == fit([one, large])


def test_classes_that_lie_apart_give_a_finite_curve_between_them() -> None:
    curve = fit([Judged("set", [0.8, 0.9], [0.1, 0.2])])
    assert math.isfinite(curve.slope) and 0.2 < curve.midpoint < 0.8


@settings(deadline=None, max_examples=25)
@given(st.floats(0.05, 0.4), st.floats(0.05, 0.3), st.floats(0.2, 0.6))
def test_the_fit_ends_at_a_curve_that_rises(apart: float, spread: float, low: float) -> None:
    curve = fit([normal("set", 200, low + apart, low, spread)])
    assert curve.slope > 0 and curve.relevance(low + apart) > 0.5 > curve.relevance(low)


@pytest.mark.parametrize(
    ("judged", "field"),
    [
        (Judged("set", [], [0.1]), "set"),
        (Judged("set", [0.9], []), "set"),
        (Judged("set", [0.1, 0.2], [0.8, 0.9]), "datasets"),
        (Judged("set", [0.5], [0.5]), "datasets"),
    ],
)
def test_what_tells_nothing_is_refused(judged: Judged, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        fit([judged])
    assert refused.value.field == field and refused.value.remedy


def test_the_report_tells_what_the_threshold_keeps() -> None:
    judged = Judged("set", [0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.4, 0.75])
    told = report("m", [judged], 0.5)
    ((kept,)) = told.sets
    assert (told.model, kept.relevant, kept.irrelevant) == ("m", 4, 4)
    assert kept.relevant_kept == np.mean([score >= told.midpoint for score in judged.relevant])
    assert kept.irrelevant_kept == 0.25


@pytest.mark.parametrize("keyword", [False, True])
async def test_the_best_hits_of_a_set_are_judged_through_the_products_stages(
    records: Path, tmp_path: Path, keyword: bool
) -> None:
    dataset, weights = load(records), Weights()
    async with prepared(records, dataset, DeterministicEmbedder(16), PARTS, tmp_path / "work") as ready:
        judged = await judge(dataset, ready.setup, weights, keyword=keyword)
    # Two queries about one document each; of the long one its best chunk counts, and never the whole.
    assert len(judged.relevant) == 2
    assert len(judged.irrelevant) == (0 if keyword else 2)
    assert all(0 <= score <= 1 for score in judged.relevant + judged.irrelevant)
    assert not keyword or min(judged.relevant) > 0
