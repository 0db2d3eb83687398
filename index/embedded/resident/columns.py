"""Filters over columns in memory: each condition as a mask of rows, by the meaning of ``contracts.filters.matches``."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contracts.errors import InvalidFilter
from contracts.filters import FIELDS, And, Contains, Eq, Filter, In, Not, Or, Range, Under, kind_of
from index.conditions import comparable, require, whole_bounds
from index.embedded.resident.postings import Postings

Mask = NDArray[np.bool_]


class Columns:
    """The filterable columns of an account's nodes.

    Args:
        table: Its rows, in one chunk a column.
    """

    def __init__(self, table: pa.Table) -> None:
        self._size = len(table)
        column = {name: table[name].chunk(0) for name in (*FIELDS, "attrs")}
        kinds = {name: [field for field, kind in FIELDS.items() if kind in of] for name, of in _KINDS.items()}
        self._texts: Mapping[str, Codes] = {name: Codes(column[name]) for name in kinds["text"]}
        self._numbers: Mapping[str, NDArray[Any]] = {name: column[name].to_numpy() for name in kinds["number"]}
        self._lists: Mapping[str, Postings] = {name: Postings(column[name]) for name in (*kinds["list"], "attrs")}

    def mask(self, condition: Filter) -> Mask:
        """The rows that satisfy a condition.

        Raises:
            InvalidFilter: An unknown field, or a value or operator that does not fit the field.
        """
        match condition:
            case And(parts):
                return reduce(np.logical_and, map(self.mask, parts), self._all(True))
            case Or(parts):
                return reduce(np.logical_or, map(self.mask, parts), self._all(False))
            case Not(part):
                return ~self.mask(part)
            case Eq(field, value):
                return self._one_of(field, (value,))
            case In(field, values):
                return self._one_of(field, values)
            case Contains(field, values):
                require(field, kind_of(field) == "keywords", "Contains")
                every = [self._one_of(field, (value,)) for value in values]
                return reduce(np.logical_and, every) if every else self._all(False)
            case Under(field, root):
                require(field, kind_of(field) == "uri" and isinstance(root, str) and root != "", "Under")
                return self._texts[field].under(root)
            case Range():
                return self._range(condition)
        raise InvalidFilter(f"{type(condition).__name__} is no filter.", field="filter")

    def codes(self, field: str) -> "Codes":
        """A keyword or URI column."""
        return self._texts[field]

    def _one_of(self, field: str, values: tuple[Any, ...]) -> Mask:
        known = comparable(field, values)
        if field in self._texts:
            return self._texts[field].one_of(known)  # type: ignore[arg-type]
        if field in self._numbers:
            return np.isin(self._numbers[field], known) if len(known) != 1 else self._numbers[field] == known[0]
        name, prefix = ("attrs", f"{field[6:]}=") if field.startswith("attrs.") else (field, "")
        mask = self._all(False)
        for value in known:
            mask[self._lists[name].of(f"{prefix}{value}")[0]] = True
        return mask

    def _range(self, condition: Range) -> Mask:
        bounds = whole_bounds(condition)
        if bounds is None:
            return self._all(False)
        low, high = bounds
        column, mask = self._numbers[condition.field], self._all(True)
        if low is not None:
            mask &= column >= low
        if high is not None:
            mask &= column <= high
        return mask

    def _all(self, value: bool) -> Mask:
        return np.full(self._size, value)


_KINDS = {"text": ("keyword", "uri"), "number": ("number",), "list": ("keywords",)}


class Codes:
    """A column of strings as whole numbers that sort as the strings do.

    Args:
        column: The strings.

    Attributes:
        values: The distinct strings, sorted.
        codes: Position in ``values`` a row, int32 of shape (rows,).
    """

    def __init__(self, column: pa.StringArray) -> None:
        encoded = column.dictionary_encode()
        found = encoded.dictionary.to_pylist()
        order = sorted(range(len(found)), key=found.__getitem__)
        self.values: list[str] = [found[position] for position in order]
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order))
        self.codes: NDArray[np.int32] = rank[encoded.indices.to_numpy()]

    def one_of(self, values: Iterable[str]) -> Mask:
        """Rows that hold one of these."""
        held = [code for value in values if (code := self._code(value)) is not None]
        if len(held) <= 1:
            return np.equal(self.codes, held[0] if held else -1)
        wanted = np.zeros(len(self.values), np.bool_)
        wanted[held] = True
        return wanted[self.codes]

    def under(self, root: str) -> Mask:
        """Rows that hold this URI or one in its subtree."""
        # The subtree lies between "root/" and "root0", for 0 comes right after the slash.
        low, high = bisect_left(self.values, f"{root}/"), bisect_left(self.values, f"{root}0")
        return ((self.codes >= low) & (self.codes < high)) | self.one_of((root,))

    def _code(self, value: str) -> int | None:
        position = bisect_left(self.values, value)
        return position if position < len(self.values) and self.values[position] == value else None
