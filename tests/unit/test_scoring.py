"""Scores on absolute scales (C15, design decision 7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.hits import ScoreBreakdown
from contracts.ports import RecallHit
from contracts.query import TypedQuery
from stages.scoring import Scorer, ScoringConfig, Weights, final_score, rank_key, relevance, with_hierarchy
from tests.support.hits import node_hit as candidate

unit = st.floats(0, 1)


def recalled(kind: str) -> RecallHit:
    return RecallHit(
        "strata://shared/a",
        "",
        "a",
        kind,
        "guide",
        "shared",
        "resource",
        1,
        "text",
        True,
        True,
        False,
        0.6,
        0.5,
        "both",
    )


@given(unit, unit, unit, unit)
def test_the_final_score_is_the_weighted_sum_of_c15_and_stays_in_0_to_1(a: float, b: float, c: float, d: float) -> None:
    """C15."""
    scores = ScoreBreakdown(relevance=a, hierarchy=b, category=c, target=d)
    score = final_score(scores, Weights())
    assert score == pytest.approx(0.65 * a + 0.20 * b + 0.10 * c + 0.05 * d)
    assert -1e-9 <= score <= 1 + 1e-9


@given(unit, unit, st.floats(0, 10))
def test_relevance_lies_between_its_parts(keyword: float, vector: float, beta: float) -> None:
    value = relevance(keyword, vector, beta)
    assert min(keyword, vector) - 1e-9 <= value <= max(keyword, vector) + 1e-9


def test_a_missing_part_leaves_the_other_on_its_own_scale() -> None:
    assert relevance(None, 0.4, 0.7) == 0.4
    assert relevance(0.3, None, 0.7) == 0.3
    assert relevance(None, None, 0.7) == 0.0


@pytest.mark.parametrize(("kind", "beta"), [("section", 0.7), ("function", 1.5)])
def test_a_kind_of_node_may_weigh_meaning_and_words_its_own_way(kind: str, beta: float) -> None:
    hit = Scorer(TypedQuery("q", "resource"), 0, ScoringConfig(betas={"function": 1.5}), ())(recalled(kind))
    assert hit.scores.relevance == pytest.approx((0.5 + beta * 0.6) / (1 + beta))


def test_weights_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"add up to 1\.1"):
        Weights(vector=0.75)


def test_the_parents_relevance_enters_the_score_by_its_weight() -> None:
    hit = candidate("strata://shared/a", scores=ScoreBreakdown(relevance=0.5))
    assert with_hierarchy(hit, 0.5, Weights()).score == pytest.approx(0.65 * 0.5 + 0.20 * 0.5)


def test_ties_prefer_an_overview_then_the_earlier_query() -> None:
    """C15."""
    bare = candidate("strata://shared/a", has_overview=False)
    late = candidate("strata://shared/b", query=1)
    early = candidate("strata://shared/c", query=0)
    assert sorted([bare, late, early], key=rank_key) == [early, late, bare]
