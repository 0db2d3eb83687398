"""Lexical coverage."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.bm25 import BM25Config, FieldStatistics, Saturation, Statistics, coverage, idf
from index.text import Analysis, Countable

NOTHING = FieldStatistics(0, 0, {})
STANDARD = Saturation()


def score(query: Analysis, words: str, bigrams: str = "", *, statistics: Statistics, weight: float = 0.3) -> float:
    (found,) = coverage(query, [(Countable.of(words), Countable.of(bigrams))], statistics, STANDARD, weight)
    return found


def test_coverage_follows_the_formula() -> None:
    """BM25 without (k1 + 1), over the sum of idf of all query terms, absent ones with df 0."""
    statistics = Statistics(FieldStatistics(10, 40, {"run": 3, "command": 1}), NOTHING)
    query = Analysis(["run", "command", "absent"], [])
    idf_run, idf_command, idf_absent = log(1 + 7.5 / 3.5), log(1 + 9.5 / 1.5), log(1 + 10.5 / 0.5)
    norm = 1.2 * (1 - 0.75 + 0.75 * 6 / 4)
    expected = (idf_run * 2 / (2 + norm) + idf_command * 1 / (1 + norm)) / (idf_run + idf_command + idf_absent)
    assert score(query, "run a b run c command", statistics=statistics) == pytest.approx(expected)


def test_words_and_bigrams_combine_linearly_when_the_query_has_bigrams() -> None:
    statistics = Statistics(FieldStatistics(4, 8, {"检索": 2}), FieldStatistics(2, 6, {"检索": 1}))
    query = Analysis(["检索"], ["检索", "索引"])
    by_words = idf(4, 2) / (1 + 1.2 * (1 - 0.75 + 0.75 * 2 / 2))
    by_pairs = idf(2, 1) / (1 + 1.2 * (1 - 0.75 + 0.75 * 3 / 3))
    expected = (0.7 * by_words + 0.3 * by_pairs) / (0.7 * idf(4, 2) + 0.3 * (idf(2, 1) + idf(2, 0)))
    assert score(query, "检索 排序", "检索 索排 排序", statistics=statistics) == pytest.approx(expected)


def test_a_query_without_bigrams_is_scored_by_words_alone() -> None:
    statistics = Statistics(FieldStatistics(4, 8, {"run": 2}), FieldStatistics(2, 6, {"检索": 1}))
    with_pairs = score(Analysis(["run"], []), "run", "检索", statistics=statistics)
    assert with_pairs == score(Analysis(["run"], []), "run", "", statistics=statistics) > 0


def test_a_repeated_query_term_counts_once() -> None:
    statistics = Statistics(FieldStatistics(4, 8, {"run": 2, "stop": 1}), NOTHING)
    once = score(Analysis(["run", "stop"], []), "run away", statistics=statistics)
    assert score(Analysis(["run", "run", "stop"], []), "run away", statistics=statistics) == once


@pytest.mark.parametrize("query", [Analysis([], []), Analysis(["absent"], []), Analysis(["缺"], ["缺席"])])
def test_nothing_in_common_is_no_coverage(query: Analysis) -> None:
    assert score(query, "run command", "检索", statistics=Statistics(NOTHING, NOTHING)) == 0
    assert score(query, "", statistics=Statistics(NOTHING, NOTHING)) == 0


def test_turns_of_dialogue_have_constants_of_their_own() -> None:
    config = BM25Config()
    assert config.saturation("turn") == Saturation(k1=0.6, b=0.3)
    assert config.saturation("section") == Saturation(k1=1.2, b=0.75)
    assert BM25Config(kinds={"note": Saturation(k1=1, b=0)}).saturation("note").b == 0


terms = st.lists(st.sampled_from("abcdefg"), max_size=12)


@given(
    query=terms,
    pairs=terms,
    texts=st.lists(st.tuples(terms, terms), max_size=6),
    weight=st.just(0.0) | st.floats(1e-3, 1),
)
def test_coverage_lies_between_0_and_1_and_shared_terms_only_add(
    query: list[str], pairs: list[str], texts: list[tuple[list[str], list[str]]], weight: float
) -> None:
    fields = []
    for position in (0, 1):
        filled = [text[position] for text in texts if text[position]]
        frequencies = {term: sum(term in text for text in filled) for term in "abcdefg"}
        fields.append(FieldStatistics(len(filled), sum(map(len, filled)), frequencies))
    joined = [(Countable.of(" ".join(words)), Countable.of(" ".join(bigrams))) for words, bigrams in texts]
    found = coverage(Analysis(query, pairs), joined, Statistics(*fields), STANDARD, weight)
    for (words, bigrams), value in zip(texts, found, strict=True):
        assert 0 <= value < 1
        common = bool(set(query) & set(words)) * (1 - weight * bool(pairs)) + bool(set(pairs) & set(bigrams)) * weight
        assert (value > 0) == (common > 0)


def test_idf_stays_positive_even_when_statistics_lag_behind() -> None:
    assert idf(3, 5) > 0
