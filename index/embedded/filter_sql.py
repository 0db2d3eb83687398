"""Filters as LanceDB's SQL: a pure compiler, and the only place that writes such text.

Column names come from a fixed list and every literal is quoted, so nothing a caller sends is read as SQL. Columns are
never null (a missing value is the empty string), so ``Not`` is the plain complement. Numbers are whole on disk; bounds
are rounded to the whole numbers that mean the same, because LanceDB refuses fractions there.
"""

from collections.abc import Iterable
from typing import Any

from contracts.errors import InvalidFilter
from contracts.filters import And, Contains, Eq, Filter, In, Not, Or, Range, Under, kind_of
from index.conditions import comparable, encodable, require, whole_bounds

TRUE, FALSE = "true", "false"


def where(condition: Filter) -> str:
    """The SQL predicate that holds for just the rows that ``contracts.filters.matches``.

    Raises:
        InvalidFilter: An unknown field, or a value or operator that does not fit the field.
    """
    match condition:
        case And(parts):
            return _joined(" AND ", map(where, parts), empty=TRUE)
        case Or(parts):
            return _joined(" OR ", map(where, parts), empty=FALSE)
        case Not(part):
            return f"(NOT {where(part)})"
        case Eq(field, value):
            return _one_of(field, (value,))
        case In(field, values):
            return _one_of(field, values)
        case Contains(field, values):
            require(field, kind_of(field) == "keywords", "Contains")
            return _joined(" AND ", [_one_of(field, (value,)) for value in values], empty=FALSE)
        case Under(field, root):
            require(field, kind_of(field) == "uri" and isinstance(root, str) and root != "", "Under")
            return f"({field} = {literal(root)} OR starts_with({field}, {literal(root + '/')}))"
        case Range():
            return _range(condition)
    raise InvalidFilter(f"{type(condition).__name__} is no filter.", field="filter")


def literal(value: str) -> str:
    """A string as an SQL literal.

    Raises:
        InvalidFilter: Lone surrogates, which no stored text can hold.
    """
    return "'" + encodable(value).replace("'", "''") + "'"


def one_of(column: str, values: Iterable[str] | Iterable[int]) -> str:
    """``column IN (values)`` for a column name of ours; false for no values."""
    literals = [literal(v) if isinstance(v, str) else str(int(v)) for v in values]
    return f"{column} IN ({', '.join(literals)})" if literals else FALSE


def _one_of(field: str, values: tuple[Any, ...]) -> str:
    known = comparable(field, values)
    if kind_of(field) != "keywords":
        return one_of(field, known)
    column, prefix = ("attrs", f"{field[6:]}=") if field.startswith("attrs.") else (field, "")
    return _joined(" OR ", [f"array_has({column}, {literal(f'{prefix}{v}')})" for v in known], empty=FALSE)


def _range(condition: Range) -> str:
    bounds = whole_bounds(condition)
    if bounds is None:
        return FALSE
    low, high = bounds
    parts = [f"{condition.field} >= {low}"] * (low is not None) + [f"{condition.field} <= {high}"] * (high is not None)
    return _joined(" AND ", parts, empty=TRUE)


def _joined(operator: str, parts: Iterable[str], *, empty: str) -> str:
    texts = list(parts)
    return f"({operator.join(texts)})" if texts else empty
