"""Which rows hold a value, and how often: an inverted index over one column of lists."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Rows = NDArray[np.int32]
Counts = NDArray[np.float64]

_NONE: tuple[Rows, Counts] = (np.empty(0, np.int32), np.empty(0))


class Postings:
    """Rows by value.

    Args:
        lists: A list of strings a row.

    Attributes:
        lengths: Values a row, int64 of shape (rows,).
    """

    def __init__(self, lists: pa.ListArray) -> None:
        size = len(lists)
        values = pc.list_flatten(lists).dictionary_encode()
        rows = pc.list_parent_indices(lists).to_numpy()
        self.lengths = np.bincount(rows, minlength=size)
        # One number a pair of value and row, so that equal ones count how often it is there.
        pairs, counts = np.unique(values.indices.to_numpy().astype(np.int64) * size + rows, return_counts=True)
        codes, self._rows = np.divmod(pairs, max(size, 1))
        self._rows = self._rows.astype(np.int32)
        self._counts = counts.astype(np.float64)
        self._bounds = np.searchsorted(codes, np.arange(len(values.dictionary) + 1)).tolist()
        self._codes = {value: code for code, value in enumerate(values.dictionary.to_pylist())}

    def of(self, value: str) -> tuple[Rows, Counts]:
        """The rows that hold a value, in order, and how often each does."""
        code = self._codes.get(value)
        if code is None:
            return _NONE
        held = slice(self._bounds[code], self._bounds[code + 1])
        return self._rows[held], self._counts[held]


def split(texts: pa.StringArray) -> pa.ListArray:
    """The terms of texts that join them by white space."""
    lists = pc.split_pattern(texts, " ")
    # An empty text is split into one empty term.
    return pc.if_else(pc.equal(texts, ""), pa.scalar([], lists.type), lists)
