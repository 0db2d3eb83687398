"""Lexical coverage of all nodes of an account at once; the formula is that of ``index.bm25.coverage``."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from index.bm25 import BM25Config
from index.embedded.resident.columns import Codes, Mask
from index.embedded.resident.postings import Postings, split
from index.text import Analysis

Scores = NDArray[np.float64]


class Covered(NamedTuple):
    """What a query's words find.

    Args:
        scores: Coverage in 0..1 a row.
        found: Rows that hold a term of the query at all.
    """

    scores: Scores
    found: Mask


class Coverage:
    """Scores texts against queries.

    Args:
        words: The words of each node, joined by white space.
        bigrams: Its bigrams, likewise.
        kinds: The kind of each node, which has statistics and constants of its own.
        config: The constants.
    """

    def __init__(self, words: pa.StringArray, bigrams: pa.StringArray, kinds: Codes, config: BM25Config) -> None:
        self._kinds = kinds.codes
        self._bigram_weight = config.bigram_weight
        self._words = _Field(words, kinds, config)
        self._bigrams = _Field(bigrams, kinds, config)

    def of(self, query: Analysis) -> Covered:
        """The coverage of a query by every node."""
        size = len(self._kinds)
        scores, found, most = np.zeros(size), np.zeros(size, np.bool_), np.zeros(self._words.count)
        share = self._bigram_weight if query.bigrams else 0.0
        for field, terms, weight in ((self._words, query.words, 1 - share), (self._bigrams, query.bigrams, share)):
            field.add(terms, weight, scores, found, most)
        return Covered(scores / np.where(most > 0, most, 1)[self._kinds], found)


class _Field:
    """One of the two fields of an ``Analysis`` over all nodes."""

    def __init__(self, texts: pa.StringArray, kinds: Codes, config: BM25Config) -> None:
        self._kinds, self.count = kinds.codes, len(kinds.values)
        self._postings = Postings(split(texts))
        lengths = self._postings.lengths
        self._documents = np.bincount(self._kinds[lengths > 0], minlength=self.count)
        tokens = np.bincount(self._kinds, weights=lengths, minlength=self.count)
        average = np.where(self._documents > 0, tokens / np.maximum(self._documents, 1), 1.0)
        constants = [config.saturation(kind) for kind in kinds.values]
        base = np.array([c.k1 * (1 - c.b) for c in constants])
        slope = np.array([c.k1 * c.b for c in constants]) / average
        self._norms: Scores = base[self._kinds] + slope[self._kinds] * lengths

    def add(self, terms: Sequence[str], weight: float, scores: Scores, found: Mask, most: Scores) -> None:
        """Add what a query's distinct terms give to the sums: ``scores`` and ``found`` a row, ``most`` a kind."""
        for term in dict.fromkeys(terms):
            rows, counts = self._postings.of(term)
            kinds = self._kinds[rows]
            held = np.bincount(kinds, minlength=self.count)
            idf = weight * np.log1p((np.maximum(self._documents, held) - held + 0.5) / (held + 0.5))
            most += idf
            scores[rows] += idf[kinds] * counts / (counts + self._norms[rows])
            found[rows] = True
