"""Lexical coverage: BM25 on an absolute scale, so that it can be added to a cosine."""

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from index.text import Analysis, Countable


class Saturation(BaseModel):
    """The two constants of BM25."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k1: float = Field(1.2, ge=0, le=10, description="Higher: repeating a term counts for longer.")
    b: float = Field(0.75, ge=0, le=1, description="Higher: long texts are held back more.")


class BM25Config(BaseModel):
    """How lexical coverage is computed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: Saturation = Field(Saturation(), description="For kinds without constants of their own.")
    kinds: dict[str, Saturation] = Field(
        {"turn": Saturation(k1=0.6, b=0.3)},
        description="By kind of node; turns of dialogue are short and saturate early.",
    )
    bigram_weight: float = Field(
        0.3, ge=0, le=1, description="Share of CJK character pairs beside words; pairs forgive wrong word boundaries."
    )

    def saturation(self, kind: str) -> Saturation:
        """The constants for a kind of node."""
        return self.kinds.get(kind, self.default)


class FieldStatistics(NamedTuple):
    """What is known of one field over all nodes of an account and kind.

    Args:
        documents: Nodes with at least one term in the field.
        tokens: Terms in all of them together.
        frequencies: Nodes that hold a term, at least for each term of the query that is in any.
    """

    documents: int
    tokens: int
    frequencies: Mapping[str, int]


class Statistics(NamedTuple):
    """Statistics of the two fields of an ``Analysis``."""

    words: FieldStatistics
    bigrams: FieldStatistics


def idf(documents: int, frequency: int) -> float:
    """Lucene's inverse document frequency, ln(1 + (N - df + 0.5) / (df + 0.5)); above 0 for any df."""
    return log(1 + (max(documents, frequency) - frequency + 0.5) / (frequency + 0.5))


def coverage(
    query: Analysis,
    documents: Iterable[tuple[Countable, Countable]],
    statistics: Statistics,
    saturation: Saturation,
    bigram_weight: float,
) -> list[float]:
    """How much of the query each document covers: BM25 over what a perfect document would get.

    Σ idf · tf / (tf + k1 · (1 - b + b · length / average)) over the query's distinct terms, divided by Σ idf over all
    of them, those no document holds included (df 0). So it fades by itself where the vocabulary does not fit. With
    CJK in the query, both sums are (1 - w) · words + w · bigrams.

    Args:
        query: The analysed query.
        documents: Words and bigrams of each document.
        statistics: Of the documents' account and kind.
        saturation: k1 and b.
        bigram_weight: w, in 0..1.

    Returns:
        0..1 a document, in order.
    """
    share = bigram_weight if query.bigrams else 0.0
    words = _Scorer(query.words, statistics.words, saturation, 1 - share)
    bigrams = _Scorer(query.bigrams, statistics.bigrams, saturation, share)
    most = words.most + bigrams.most or 1.0
    if not share:
        return [words.score(text) / most for text, _ in documents]
    return [(words.score(text) + bigrams.score(pairs)) / most for text, pairs in documents]


class _Scorer:
    """BM25 of one field for one query, times ``share``; ``most`` is what a perfect document would get."""

    def __init__(self, terms: Sequence[str], statistics: FieldStatistics, saturation: Saturation, share: float) -> None:
        held = statistics.frequencies
        weights = {term: share * idf(statistics.documents, held.get(term, 0)) for term in terms}
        self._weights = [(f" {term} ", weight) for term, weight in weights.items()]
        self.most = sum(weights.values())
        average = statistics.tokens / statistics.documents if statistics.documents else 1.0
        self._base = saturation.k1 * (1 - saturation.b)
        self._slope = saturation.k1 * saturation.b / average

    def score(self, text: Countable) -> float:
        padded, length = text
        norm = self._base + self._slope * length
        found = 0.0
        for term, weight in self._weights:
            if tf := padded.count(term):
                found += weight * tf / (tf + norm)
        return found
