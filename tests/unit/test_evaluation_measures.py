"""nDCG@10 and recall@10 against figures worked out by hand."""

import math

import pytest

from evaluation.measures import measure


def test_ndcg_and_recall_agree_with_a_hand_computed_example() -> None:
    """Gains 1, 0, 1 against the ideal 1, 1; and 1, 2 against the ideal 2, 1."""
    qrels = {"q1": {"a": 1, "b": 1}, "q2": {"y": 1, "z": 2}}
    quality = measure(qrels, {"q1": ["a", "x", "b"], "q2": ["y", "z"]})
    first = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    second = (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))
    assert quality.ndcg == pytest.approx((first + second) / 2)
    assert quality.recall == 1.0


def test_a_query_without_an_answer_counts_as_zero() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    assert measure(qrels, {"q1": ["a"], "q2": []}).recall == pytest.approx(0.5)
    assert measure(qrels, {"q1": ["a"]}).ndcg == pytest.approx(0.5)


def test_only_the_first_ten_count() -> None:
    ranking = [f"x{i}" for i in range(10)] + ["a"]
    assert measure({"q": {"a": 1}}, {"q": ranking}).recall == 0.0
    assert measure({"q": {"a": 1}}, {"q": ranking[1:]}).recall == 1.0


def test_the_order_given_is_the_order_measured() -> None:
    """A tie broken by document id would rank ``z`` first."""
    ahead = measure({"q": {"a": 1}}, {"q": ["a", "z"]})
    behind = measure({"q": {"a": 1}}, {"q": ["z", "a"]})
    assert ahead.ndcg == 1.0
    assert behind.ndcg == pytest.approx(1 / math.log2(3))
