"""Relevance on one scale for all models (R3)."""

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.hits import RetrievedBlock, ScoreBreakdown
from contracts.trace import Degradation
from corpora.rag.calibration import DEFAULTS, KEYWORD, UNKNOWN, Calibration, Scale, evidence
from models.catalog import CATALOG
from models.deterministic import NAME
from stages.assembler import block as shown
from stages.scoring import Weights, relevance
from tests.support.hits import node_hit

CURVE = Calibration(slope=10, midpoint=0.4)
WEIGHTS = Weights()
share = st.floats(0, 1)


def scale(model: str = "m", **curves: Calibration) -> Scale:
    return Scale(model, {"m": CURVE, KEYWORD: Calibration(slope=5, midpoint=0.5), **curves}, WEIGHTS)


def block(uri: str, relevant: float, score: float = 0.0, **changes: object) -> RetrievedBlock:
    scores = ScoreBreakdown(vector=relevant, relevance=relevant, hierarchy=relevant, **changes)  # type: ignore[arg-type]
    return shown(node_hit(uri, score, scores=scores, has_overview=False))


def test_half_is_as_likely_relevant_as_not_and_the_default_threshold_says_1_22_to_1() -> None:
    assert CURVE.relevance(0.4) == 0.5
    odds = 0.55 / 0.45
    assert CURVE.relevance(0.4 + math.log(odds) / 10) == pytest.approx(0.55)
    assert odds == pytest.approx(1.22, abs=0.005)


@given(st.floats(0.001, 1000), st.floats(-1, 2), share, share)
def test_more_evidence_never_means_less_relevance(slope: float, midpoint: float, one: float, other: float) -> None:
    curve = Calibration(slope=slope, midpoint=midpoint)
    low, high = sorted([one, other])
    assert 0 <= curve.relevance(low) <= curve.relevance(high) <= 1


@given(share, share, share, share, share)
def test_evidence_rises_with_a_hits_own_score_and_its_parents_and_with_nothing_else(
    own: float, parents: float, more: float, category: float, target: float
) -> None:
    low, high = sorted([own, more])
    plain = evidence(ScoreBreakdown(relevance=low, hierarchy=parents), WEIGHTS)
    lifted = ScoreBreakdown(relevance=low, hierarchy=parents, category=category, target=target, rerank=more)
    assert evidence(lifted, WEIGHTS) == plain
    assert 0 <= plain <= evidence(ScoreBreakdown(relevance=high, hierarchy=parents), WEIGHTS) <= 1 + 1e-9


def test_parents_that_were_not_looked_at_are_not_held_against_a_hit() -> None:
    alone = ScoreBreakdown(relevance=0.6)
    assert evidence(alone, WEIGHTS, expanded=False) == 0.6
    assert evidence(alone, WEIGHTS) < 0.6
    assert evidence(alone, Weights(vector=0, hierarchy=0, category=1, target=0)) == 0.6


@given(share.filter(bool), share)
def test_hits_found_by_words_alone_are_measured_by_the_curve_for_words(keyword: float, beta: float) -> None:
    by_words = ScoreBreakdown(keyword=keyword, relevance=relevance(keyword, None, beta))
    assert scale().relevance(by_words) == Calibration(slope=5, midpoint=0.5).relevance(keyword)
    # A hit with a vector of the opposite meaning is one of the model's.
    if relevance(keyword, 0.0, beta) != keyword:
        both = ScoreBreakdown(keyword=keyword, relevance=relevance(keyword, 0.0, beta), hierarchy=0.5)
        assert scale().relevance(both) == CURVE.relevance(evidence(both, WEIGHTS))


def test_a_threshold_keeps_what_reaches_it_and_counts_the_rest() -> None:
    found = [block(f"strata://shared/{number}", number / 10) for number in range(10)]
    ranking = scale().ranking(found, CURVE.relevance(0.7))
    assert [hit.uri[-1] for hit in ranking.hits] == ["9", "8", "7"]
    assert ranking.below_threshold == 7
    assert all(hit.score == hit.relevance for hit in ranking.hits)


def test_the_rerankers_order_stands_and_the_threshold_is_held_against_relevance_all_the_same() -> None:
    found = [
        block("strata://shared/a", 0.6, 0.9, rerank=0.9),
        block("strata://shared/b", 0.9, 0.8, rerank=0.8),
        block("strata://shared/c", 0.1, 0.7, rerank=0.7),
    ]
    ranking = scale().ranking(found, 0.5)
    assert [(hit.uri[-1], hit.score) for hit in ranking.hits] == [("a", 0.9), ("b", 0.8)]


def test_parents_and_nodes_without_a_text_are_no_hits() -> None:
    found = block("strata://shared/a", 0.9)
    ranking = scale().ranking([replace(found, has_overview=True), replace(found, has_content=False)], 0.0)
    assert (ranking.hits, ranking.below_threshold) == ((), 0)


def test_without_the_expander_a_chunk_is_measured_by_itself() -> None:
    alone = replace(block("strata://shared/a", 0.0), scores=ScoreBreakdown(vector=0.9, relevance=0.5))
    part = Degradation("expander", "RET-5041: late", 1)
    (hit,) = scale().ranking([alone], 0.0, [part]).hits
    assert hit.relevance == CURVE.relevance(0.5)
    assert scale().ranking([alone], 0.0).hits[0].relevance < hit.relevance


def test_every_shipped_model_has_a_curve() -> None:
    assert DEFAULTS.keys() == {*CATALOG, NAME, KEYWORD}


@pytest.mark.parametrize(("model", "warnings"), [("owner/new", 1), (NAME, 0), ("m", 0)])
def test_a_model_without_a_curve_is_warned_of_and_measured_by_a_guess(
    model: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        made = scale(model)
    assert len(caplog.records) == warnings
    assert all("strata calibrate" in record.getMessage() for record in caplog.records)
    scores = ScoreBreakdown(vector=0.5, relevance=0.5, hierarchy=0.5)
    known = {**DEFAULTS, "m": CURVE}
    assert made.relevance(scores) == known.get(model, UNKNOWN).relevance(0.5)
