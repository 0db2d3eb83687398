"""All nodes of one account in memory, as they were at one revision: recall and metadata without a look at the disk."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contracts.ports import NodeMeta, Recalled, RecallHit, RecallQuery, Vectors
from contracts.records import ModelRef
from index.bm25 import BM25Config
from index.candidates import FOUND_BY, SHOWN, refuse_other_model
from index.embedded.resident.columns import Columns, Mask
from index.embedded.resident.coverage import Coverage, Covered
from index.embedded.table import attributes
from index.rows import unit
from index.text import analyze

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Cosines = NDArray[np.float32]
# Scores of all rows kept, for the latest queries: the stages of a search ask with the same text and vector.
_REMEMBERED = 16
_META = NodeMeta.__struct_fields__
# What is read of each node.
COLUMNS = tuple(dict.fromkeys((*_META, *SHOWN, "words", "bigrams", "vector")))


class Snapshot:
    """The nodes of an account. Not safe for threads.

    Args:
        table: Their ``COLUMNS``; one node at least.
        model: Of their vectors.
        config: Constants of the lexical coverage.
    """

    def __init__(self, table: pa.Table, model: ModelRef, config: BM25Config) -> None:
        table = table.combine_chunks()
        self._model = model
        self._columns = Columns(table)
        words, bigrams, vectors = (table[name].chunk(0) for name in ("words", "bigrams", "vector"))
        self._coverage = Coverage(words, bigrams, self._columns.codes("kind"), config)
        self._vectors: Vectors = vectors.flatten().to_numpy().reshape(len(table), -1)
        values = {name: table[name].to_pylist() for name in {*_META, *SHOWN}}
        self._shown = list(zip(*(values[name] for name in SHOWN), strict=True))
        self._fields = list(zip(*(values[name] for name in _META), strict=True))
        self._rows = {uri: row for row, uri in enumerate(values["uri"])}
        self._nodes: dict[int, NodeMeta] = {}
        self._covered: OrderedDict[str, Covered] = OrderedDict()
        self._cosines: OrderedDict[bytes, Cosines] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shown)

    def meta(self, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """See ``SearchIndex.meta``."""
        return {uri: self._node(row) for uri in uris if (row := self._rows.get(uri)) is not None}

    def recall(self, query: RecallQuery) -> Recalled:
        """See ``SearchIndex.recall``; both recalls are exact, and neither can fail.

        Raises:
            InvalidFilter: A field that the index lacks, or a value that does not fit.
        """
        mask = self._columns.mask(query.condition)
        query, failed = refuse_other_model(query, self._model)
        covered = _remembered(self._covered, query.text, lambda: self._coverage.of(analyze(query.text)))
        keyword = _best(covered.scores, mask & covered.found, query.limit)
        cosines, dense = np.zeros(len(self), np.float32), _NO_ROWS
        if (vector := query.vector) is not None:
            cosines = _remembered(self._cosines, vector.tobytes(), lambda: self._vectors @ unit(vector))
            dense = _best(cosines, mask, query.limit)
        return Recalled(self._hits(dense, keyword, cosines, covered.scores), failed, self._more(query, dense, keyword))

    def _more(self, query: RecallQuery, *found: NDArray[np.intp]) -> bool:
        return any(len(rows) >= query.limit for rows in found)

    def _hits(
        self, dense: NDArray[np.intp], keyword: NDArray[np.intp], cosines: Cosines, coverages: NDArray[np.float64]
    ) -> tuple[RecallHit, ...]:
        """Each row once, with both scores."""
        recalls = np.zeros(len(self), np.int8)
        recalls[dense] += 1
        recalls[keyword] += 2
        rows = np.flatnonzero(recalls)
        found = zip(
            rows.tolist(),
            np.clip(cosines[rows], 0, 1).tolist(),
            coverages[rows].tolist(),
            recalls[rows].tolist(),
            strict=True,
        )
        shown = self._shown
        return tuple(RecallHit(*(*shown[row], cosine, keyword, FOUND_BY[by])) for row, cosine, keyword, by in found)

    def _node(self, row: int) -> NodeMeta:
        node = self._nodes.get(row)
        if node is None:
            fields = dict(zip(_META, self._fields[row], strict=True))
            attrs = {name: tuple(values) for name, values in attributes(fields["attrs"]).items()}
            node = self._nodes[row] = NodeMeta(**fields | {"tags": tuple(fields["tags"]), "attrs": attrs})
        return node


_NO_ROWS: NDArray[np.intp] = np.empty(0, np.intp)


def _best(scores: NDArray[Any], mask: Mask, limit: int) -> NDArray[np.intp]:
    """The rows of the mask with the highest scores, at most ``limit``, in no order."""
    rows = np.flatnonzero(mask)
    if len(rows) <= limit:
        return rows
    return rows[np.argpartition(scores[rows], len(rows) - limit)[-limit:]]


def _remembered(kept: OrderedDict[K, V], key: K, make: Callable[[], V]) -> V:
    """What was made for a key before, or now; of the latest keys."""
    if key in kept:
        kept.move_to_end(key)
        return kept[key]
    made = kept[key] = make()
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)
    return made
