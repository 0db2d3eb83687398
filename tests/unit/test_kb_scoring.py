import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidBody
from corpora.knowledge_base.config import Weights
from corpora.knowledge_base.scoring import (
    Candidate,
    Scoring,
    above,
    final_score,
    freshness,
    ranks,
    rrf,
    rule_parts,
)

DAY = 86_400_000
NOW = 1_700_000_000_000
WEIGHTS = Weights()
PARTS = st.floats(0, 1)


def candidate(name: str, vec: float = 0.0, kw: float = 0.0, age_days: float = 0.0) -> Candidate:
    return Candidate(name, f"entity of {name}", "text", "text", "garment", NOW - int(age_days * DAY), vec, kw)


def scoring(weights: Weights = WEIGHTS, boosts: dict[str, float] | None = None) -> Scoring:
    return Scoring(weights, half_life_days=30, now=NOW, boosts=boosts or {})


def test_reciprocal_ranks_add_up_as_the_formula_says() -> None:
    """K2, acceptance 3 of seed 4: RRF 1/(60+rank_vec) + 1/(60+rank_kw)."""
    assert rrf(1, 1) == pytest.approx(2 / 61)
    assert rrf(3, 7) == pytest.approx(1 / 63 + 1 / 67)
    assert rrf(None, 2) == pytest.approx(1 / 62)
    assert rrf(None, None) == 0


def test_ranks_start_at_one_equal_scores_share_one_and_nothing_has_none() -> None:
    assert ranks([0.2, 0.9, 0.0, 0.9, 0.5]) == [4, 1, None, 1, 3]


def test_candidates_of_known_ranks_are_fused_as_counted_by_hand() -> None:
    """K2: a is first by meaning and third by words, b second and first, c third and second, d by words only."""
    found = [candidate("a", 0.9, 0.2), candidate("b", 0.8, 0.7), candidate("c", 0.1, 0.5), candidate("d", 0, 0.1)]
    fused = {each.chunk_id: each.rrf for each in scoring().score(found, pool=4)}
    assert fused == pytest.approx({"a": 1 / 61 + 1 / 63, "b": 1 / 62 + 1 / 61, "c": 1 / 63 + 1 / 62, "d": 1 / 64})


def test_fusion_decides_which_candidates_are_scored_at_all() -> None:
    """K2: e is good at neither, so it does not enter, though the rules would lift it above all."""
    found = [candidate("a", 0.9, 0.1), candidate("b", 0.2, 0.9), candidate("e", 0.1, 0.05)]
    assert {each.chunk_id for each in scoring(boosts={"e": 1.0}).score(found, pool=2)} == {"a", "b"}
    assert scoring(boosts={"e": 1.0}).score(found, pool=3)[0].chunk_id == "a"


def test_the_final_score_is_the_weighted_sum_of_the_seed() -> None:
    """K2: 0.45 vector + 0.2 keyword + 0.25 rule + 0.1 freshness."""
    (only,) = scoring(boosts={"a": 0.4}).score([candidate("a", vec=0.8, kw=0.5, age_days=30)], pool=1)
    assert only.final_score == pytest.approx(0.45 * 0.8 + 0.2 * 0.5 + 0.25 * 0.4 + 0.1 * 0.5)
    assert (only.vec_score, only.kw_score, only.rule_score, only.freshness) == pytest.approx((0.8, 0.5, 0.4, 0.5))


def test_known_scores_give_the_order_counted_by_hand() -> None:
    """K2, acceptance 3: 0.36+0.10=0.46, 0.225+0.25+0.1=0.575, 0.18+0.18+0.1=0.46 but fused better, 0.09."""
    found = [
        candidate("near", vec=0.8),
        candidate("ruled", vec=0.5),
        candidate("worded", vec=0.4, kw=0.9),
        candidate("stale", vec=0.2, age_days=3000),
    ]
    ordered = scoring(boosts={"ruled": 1.0}).score(found, pool=4)
    assert [each.chunk_id for each in ordered] == ["ruled", "worded", "near", "stale"]
    assert [round(each.final_score, 3) for each in ordered] == [0.575, 0.46, 0.46, 0.09]


def test_other_weights_give_another_order() -> None:
    found = [candidate("near", vec=0.9), candidate("worded", vec=0.1, kw=0.9)]
    by_words = Weights(vector=0.1, keyword=0.9, rule=0, freshness=0)
    assert [each.chunk_id for each in scoring().score(found, pool=2)] == ["near", "worded"]
    assert [each.chunk_id for each in scoring(by_words).score(found, pool=2)] == ["worded", "near"]


@given(st.permutations([candidate(name, 0.5, 0.5) for name in "abcd"]))
def test_equal_candidates_always_have_the_same_order(found: list[Candidate]) -> None:
    assert [each.chunk_id for each in scoring().score(found, pool=4)] == ["a", "b", "c", "d"]


def test_freshness_halves_with_each_half_life_and_never_exceeds_one() -> None:
    """K2: freshness decays with age."""
    assert freshness(0, 30) == 1
    assert freshness(-DAY, 30) == 1
    assert freshness(30 * DAY, 30) == pytest.approx(0.5)
    assert freshness(90 * DAY, 30) == pytest.approx(0.125)


@given(PARTS, PARTS, PARTS, PARTS)
def test_a_final_score_lies_between_zero_and_one(vec: float, kw: float, rule: float, fresh: float) -> None:
    assert -1e-9 <= final_score(vec, kw, rule, fresh, WEIGHTS) <= 1 + 1e-9


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), max_size=5))
def test_boosts_keep_their_order_and_come_to_lie_between_zero_and_one(boosts: dict[str, float]) -> None:
    parts = rule_parts(boosts)
    assert all(0 <= part <= 1 for part in parts.values())
    assert sorted(parts, key=lambda name: (boosts[name], name)) == sorted(
        parts, key=lambda name: (parts[name], boosts[name], name)
    )
    if max(boosts.values(), default=0) <= 1:
        assert parts == boosts


@pytest.mark.parametrize("boost", [-0.1, math.nan, math.inf])
def test_a_boost_that_is_no_number_of_at_least_zero_is_refused(boost: float) -> None:
    with pytest.raises(InvalidBody):
        rule_parts({"a": boost})


def test_below_the_least_cosine_only_candidates_with_a_word_of_the_query_count() -> None:
    """K5: else the nearest chunk, be it ever so far, would answer everything, and nothing were a gap."""
    found = [candidate("near", vec=0.5), candidate("far", vec=0.1), candidate("worded", vec=0.1, kw=0.01)]
    assert [each.chunk_id for each in above(found, 0.3)] == ["near", "worded"]
    assert above(found, 0.0) == found
