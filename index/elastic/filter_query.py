"""Filters as Elasticsearch queries: a pure compiler, the sibling of ``index.embedded.filter_sql``.

Records leave out what is missing (an empty string of a one-valued field too), so ``Not`` is the plain complement.
Values only ever stand where a query takes data, so nothing a caller sends is read as a query. Numbers are whole on
disk; bounds are rounded to the whole numbers that mean the same.
"""

from collections.abc import Iterable
from typing import Any

from contracts.errors import InvalidFilter
from contracts.filters import And, Contains, Eq, Filter, In, Not, Or, Range, Under, kind_of
from index.conditions import comparable, encodable, require, whole_bounds

Query = dict[str, Any]


def query(condition: Filter) -> Query:
    """The query for just the records that ``contracts.filters.matches``; for filter context, as it gives no score.

    Records are those of ``mapping.node_record``: keywords and whole numbers by name, ``attrs`` as one ``flattened``
    field, and besides ``uri`` its ``lineage``, which makes a subtree one term.

    Raises:
        InvalidFilter: An unknown field, or a value or operator that does not fit the field.
    """
    match condition:
        case And(parts):
            return _all_of(map(query, parts))
        case Or(parts):
            return _any_of(map(query, parts))
        case Not(part):
            return {"bool": {"must_not": [query(part)]}}
        case Eq(field, value):
            return _one_of(field, comparable(field, (value,)))
        case In(field, values):
            return _one_of(field, comparable(field, values))
        case Contains(field, values):
            require(field, kind_of(field) == "keywords", "Contains")
            parts_ = [_one_of(field, comparable(field, (value,))) for value in values]
            return _all_of(parts_) if parts_ else _nothing()
        case Under(field, root):
            require(field, kind_of(field) == "uri" and isinstance(root, str) and root != "", "Under")
            return _under(field, encodable(root))
        case Range():
            return _range(condition)
    raise InvalidFilter(f"{type(condition).__name__} is no filter.", field="filter")


def _nothing() -> Query:
    return {"match_none": {}}


def _all_of(queries: Iterable[Query]) -> Query:
    """AND, the conditions of inner ones taken in: flat clauses are cached and ordered by cost each by itself."""
    filters: list[Query] = []
    excluded: list[Query] = []
    for part in queries:
        match part:
            case {"bool": {"should": _}}:
                filters.append(part)
            case {"bool": inner}:
                filters += inner.get("filter", [])
                excluded += inner.get("must_not", [])
            case {"match_all": _}:
                pass
            case _:
                filters.append(part)
    if excluded:
        return {"bool": {"filter": filters, "must_not": excluded} if filters else {"must_not": excluded}}
    if len(filters) == 1:
        return filters[0]
    return {"bool": {"filter": filters}} if filters else {"match_all": {}}


def _any_of(queries: Iterable[Query]) -> Query:
    parts = list(queries)
    if len(parts) == 1:
        return parts[0]
    return {"bool": {"should": parts, "minimum_should_match": 1}} if parts else _nothing()


def _one_of(field: str, values: list[int] | list[str]) -> Query:
    if len(values) == 1:
        return {"term": {field: values[0]}}
    return {"terms": {field: values}} if values else _nothing()


def _under(field: str, root: str) -> Query:
    if field == "uri":
        return {"term": {"lineage": root}}
    return _any_of([{"term": {field: root}}, {"prefix": {field: f"{root}/"}}])


def _range(condition: Range) -> Query:
    bounds = whole_bounds(condition)
    if bounds is None:
        return _nothing()
    limits = {name: bound for name, bound in zip(("gte", "lte"), bounds, strict=True) if bound is not None}
    return {"range": {condition.field: limits}} if limits else {"exists": {"field": condition.field}}
