"""Filters as LanceDB's SQL: a pure compiler, and the only place that writes such text.

Column names come from a fixed list and every literal is quoted, so nothing a caller sends is read as SQL. Columns are
never null (a missing value is the empty string), so ``Not`` is the plain complement. Numbers are whole on disk; bounds
are rounded to the whole numbers that mean the same, because LanceDB refuses fractions there.
"""

from collections.abc import Iterable
from math import ceil, floor, isfinite
from typing import Any

from contracts.errors import InvalidFilter
from contracts.filters import And, Contains, Eq, FieldKind, Filter, In, Not, Or, Range, Under, kind_of

TRUE, FALSE = "true", "false"
_INT64 = 2**63


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
            _require(field, kind_of(field) == "keywords", "Contains")
            return _joined(" AND ", [_one_of(field, (value,)) for value in values], empty=FALSE)
        case Under(field, root):
            _require(field, kind_of(field) == "uri" and isinstance(root, str) and root != "", "Under")
            return f"({field} = {literal(root)} OR starts_with({field}, {literal(root + '/')}))"
        case Range():
            return _range(condition)
    raise InvalidFilter(f"{type(condition).__name__} is no filter.", field="filter")


def literal(value: str) -> str:
    """A string as an SQL literal.

    Raises:
        InvalidFilter: Lone surrogates, which no stored text can hold.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidFilter("A filter value is not valid Unicode text.", field="filter") from None
    return "'" + value.replace("'", "''") + "'"


def one_of(column: str, values: Iterable[str] | Iterable[int]) -> str:
    """``column IN (values)`` for a column name of ours; false for no values."""
    return in_list(column, [literal(v) if isinstance(v, str) else str(int(v)) for v in values])


def in_list(column: str, literals: list[str]) -> str:
    """``column IN (literals)`` for finished literals."""
    return f"{column} IN ({', '.join(literals)})" if literals else FALSE


def _one_of(field: str, values: tuple[Any, ...]) -> str:
    kind = kind_of(field)
    _require(field, all(_fits(value, kind) for value in values), "Eq or In")
    if kind == "number":
        return in_list(field, [str(int(v)) for v in values if v == int(v) and -_INT64 <= v < _INT64])
    if kind != "keywords":
        # The empty string stands for a missing value, which equals nothing.
        return in_list(field, [literal(v) for v in values if v])
    column, prefix = ("attrs", f"{field[6:]}=") if field.startswith("attrs.") else (field, "")
    return _joined(" OR ", [f"array_has({column}, {literal(prefix + v)})" for v in values], empty=FALSE)


def _range(condition: Range) -> str:
    field, bounds = condition.field, (condition.gte, condition.gt, condition.lte, condition.lt)
    fits = all(bound is None or _fits(bound, "number") for bound in bounds)
    _require(field, kind_of(field) == "number" and fits, "Range")
    gte, gt, lte, lt = bounds
    least = [x for x in (None if gte is None else ceil(gte), None if gt is None else floor(gt) + 1) if x is not None]
    most = [x for x in (None if lte is None else floor(lte), None if lt is None else ceil(lt) - 1) if x is not None]
    low, high = max(least, default=-_INT64), min(most, default=_INT64 - 1)
    if low > high or low >= _INT64 or high < -_INT64:
        return FALSE
    parts = [f"{field} >= {low}"] * (low > -_INT64) + [f"{field} <= {high}"] * (high < _INT64 - 1)
    return _joined(" AND ", parts, empty=TRUE)


def _fits(value: object, kind: FieldKind) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, str)


def _require(field: str, holds: bool, operator: str) -> None:
    if not holds:
        raise InvalidFilter(
            f"{operator} does not fit the {kind_of(field)} field {field!r} with this value.", field="filter"
        )


def _joined(operator: str, parts: Iterable[str], *, empty: str) -> str:
    texts = list(parts)
    return f"({operator.join(texts)})" if texts else empty
