"""The filter algebra (design decision 4): filters are values, compiled to each backend by pure functions.

A missing value satisfies no condition on its field, and ``Not`` is the plain complement, on every backend.
``matches`` is the meaning; the compilers are tested against it. Nothing fails open: an unknown field, operator or
shape is an error before any search.

JSON form, as callers write it::

    {"and": [{"eq": {"category": "function"}}, {"not": {"in": {"tags": ["deprecated"]}}}]}
    {"range": {"updated_at": {"gte": 1735689600000}}}        milliseconds since the epoch
    {"under": {"uri": "strata://shared/python"}}
    {"eq": {"attrs.language": "zh"}}                         attrs are keyword valued
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from contracts.errors import InvalidFilter
from contracts.text import UNSTORABLE
from contracts.uri import is_under
from contracts.uri import parse as parse_uri

FieldKind = Literal["keyword", "keywords", "number", "uri"]

# Fields a record can be filtered by. ``attrs.<name>`` is a further ``keywords`` field for any name.
FIELDS: Mapping[str, FieldKind] = {
    "account_id": "keyword",
    "owner_space": "keyword",
    "context_type": "keyword",
    "category": "keyword",
    "kind": "keyword",
    "status": "keyword",
    "source_id": "keyword",
    "uri": "uri",
    "parent_uri": "uri",
    "tags": "keywords",
    "level": "number",
    "depth": "number",
    "created_at": "number",
    "updated_at": "number",
    "expires_at": "number",
}
# What a caller may name; tenancy and visibility belong to the system filter alone.
CALLER_FIELDS = frozenset(FIELDS) - {"account_id", "status", "level", "expires_at"}
MAX_DEPTH = 8
MAX_CONDITIONS = 256
MAX_VALUE = 1024
# Of a field; and how much of a wrong operator an error repeats.
MAX_NAME = 128

Value = str | int | float


class And(msgspec.Struct, frozen=True, tag=True):
    """All of ``parts`` hold; the empty ``And`` holds always."""

    parts: "tuple[Filter, ...]"


class Or(msgspec.Struct, frozen=True, tag=True):
    """At least one of ``parts`` holds; the empty ``Or`` never does."""

    parts: "tuple[Filter, ...]"


class Not(msgspec.Struct, frozen=True, tag=True):
    """``part`` does not hold."""

    part: "Filter"


class Eq(msgspec.Struct, frozen=True, tag=True):
    """The field has this value; a many-valued field has it among its values."""

    field: str
    value: Value


class In(msgspec.Struct, frozen=True, tag=True):
    """The field has one of these values (or shares one, when many-valued); empty never holds."""

    field: str
    values: tuple[Value, ...]


class Range(msgspec.Struct, frozen=True, tag=True):
    """A number field lies between the bounds given."""

    field: str
    gte: float | None = None
    gt: float | None = None
    lte: float | None = None
    lt: float | None = None


class Contains(msgspec.Struct, frozen=True, tag=True):
    """A many-valued field has all of these values."""

    field: str
    values: tuple[str, ...]


class Under(msgspec.Struct, frozen=True, tag=True):
    """A URI field is this URI or lies in its subtree."""

    field: str
    root: str


Filter = And | Or | Not | Eq | In | Range | Contains | Under


def all_of(*parts: Filter | None) -> Filter:
    """AND of the parts given, flattened; parts that are ``None`` add nothing."""
    flat: list[Filter] = []
    for part in parts:
        if isinstance(part, And):
            flat.extend(part.parts)
        elif part is not None:
            flat.append(part)
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def account_of(condition: Filter) -> str:
    """The one account that a condition is confined to: it is an ``Eq`` of ``account_id``, or an ``And`` with one.

    Raises:
        InvalidFilter: It is not confined to one account: no index answers that (C20).
    """
    parts = condition.parts if isinstance(condition, And) else (condition,)
    accounts = {part.value for part in parts if isinstance(part, Eq) and part.field == "account_id"}
    if len(accounts) != 1:
        raise InvalidFilter("A search must name one account.", field="account_id")
    return str(accounts.pop())


def kind_of(field: str) -> FieldKind:
    """The kind of a field.

    Raises:
        InvalidFilter: No such field.
    """
    if field.startswith("attrs.") and field[6:].replace("_", "").isalnum():
        return "keywords"
    try:
        return FIELDS[field]
    except KeyError:
        known = ", ".join(sorted(FIELDS))
        raise InvalidFilter(
            f"Unknown filter field {field!r}.", field="filter", remedy=f"Use one of {known}, attrs.*"
        ) from None


# Gives a record's value by the name of a field.
Get = Callable[[str], Any]


def matches(condition: Filter, record: Mapping[str, Any]) -> bool:
    """Whether a record satisfies a filter; for many records, :func:`predicate` once and that a record.

    Args:
        condition: A filter.
        record: Values by field name; ``attrs`` is a mapping of name to a list of strings.

    Raises:
        InvalidFilter: An unknown field, or a range on a field that is no number.
    """
    return predicate(condition)(record.get)


def predicate(condition: Filter) -> Callable[[Get], bool]:
    """A filter as a function of a record: the reference meaning of the algebra.

    Raises:
        InvalidFilter: An unknown field, or a range on a field that is no number.
    """
    match condition:
        case And(parts):
            return _every([predicate(part) for part in parts])
        case Or(parts):
            return _some([predicate(part) for part in parts])
        case Not(part):
            holds = predicate(part)
            return lambda get: not holds(get)
        case Eq(field, value):
            return _shares(field, frozenset((value,)))
        case In(field, values):
            return _shares(field, frozenset(values))
        case Contains(field, values):
            wanted, held = frozenset(values), _values(field)
            return lambda get: bool(wanted) and wanted.issubset(held(get))
        case Under(field, root):
            held = _values(field)
            return lambda get: any(is_under(str(value), root) for value in held(get))
        case Range():
            return _within(condition)


def _every(parts: Sequence[Callable[[Get], bool]]) -> Callable[[Get], bool]:
    def every(get: Get) -> bool:
        for holds in parts:  # noqa: SIM110 -- a generator would take longer than what it goes through
            if not holds(get):
                return False
        return True

    return every


def _some(parts: Sequence[Callable[[Get], bool]]) -> Callable[[Get], bool]:
    return lambda get: any(holds(get) for holds in parts)


def _shares(field: str, wanted: frozenset[Value]) -> Callable[[Get], bool]:
    held = _values(field)
    if kind_of(field) == "keywords":
        return lambda get: not wanted.isdisjoint(held(get))
    wanted -= {""}  # A missing value.
    return lambda get: get(field) in wanted


def _within(bounds: Range) -> Callable[[Get], bool]:
    field, gte, gt, lte, lt = msgspec.structs.astuple(bounds)
    if kind_of(field) != "number":
        raise InvalidFilter(f"{field} is no number, so it has no range.", field="filter")

    def within(get: Get) -> bool:
        value = get(field)
        return (
            value is not None
            and (gte is None or value >= gte)
            and (gt is None or value > gt)
            and (lte is None or value <= lte)
            and (lt is None or value < lt)
        )

    return within


def _values(field: str) -> Callable[[Get], Collection[Any]]:
    """All values of a field; none for a missing one."""
    if field.startswith("attrs.") and kind_of(field):
        name = field[6:]
        return lambda get: (get("attrs") or {}).get(name) or ()
    if kind_of(field) == "keywords":
        return lambda get: get(field) or ()
    return lambda get: () if (value := get(field)) is None or value == "" else (value,)


def parse_filter(raw: object, *, fields: frozenset[str] = CALLER_FIELDS) -> Filter:
    """Read a filter from its JSON form.

    Args:
        raw: The decoded JSON.
        fields: Fields that may be named; ``attrs.*`` always may.

    Raises:
        InvalidFilter: Anything not understood, with the path to it.
    """
    budget = [MAX_CONDITIONS]
    return _parse(raw, "filter", fields, 0, budget)


def _parse(raw: object, path: str, fields: frozenset[str], depth: int, budget: list[int]) -> Filter:
    _spend(budget, path, 1 if depth <= MAX_DEPTH else MAX_CONDITIONS + 1)
    if not isinstance(raw, Mapping) or len(raw) != 1:
        raise InvalidFilter(
            f"{path} must be an object with one operator.", field=path, remedy="See docs/api.md for filters."
        )
    ((operator, body),) = raw.items()
    here = f"{path}.{str(operator)[:MAX_NAME]}"
    if operator in {"and", "or"}:
        if not isinstance(body, list) or not body:
            raise InvalidFilter(f"{here} must be a list of one or more filters.", field=here)
        parts = tuple(_parse(p, f"{here}[{i}]", fields, depth + 1, budget) for i, p in enumerate(body))
        return And(parts) if operator == "and" else Or(parts)
    if operator == "not":
        return Not(_parse(body, here, fields, depth + 1, budget))
    if operator not in {"eq", "in", "range", "contains", "under"}:
        raise InvalidFilter(
            f"{here} is no operator.", field=here, remedy="Use and, or, not, eq, in, range, contains, under."
        )
    if not isinstance(body, Mapping) or len(body) != 1:
        raise InvalidFilter(f"{here} must name one field.", field=here)
    ((field, value),) = ((str(name), value) for name, value in body.items())
    if len(field) > MAX_NAME or (field not in fields and not field.startswith("attrs.")):
        raise InvalidFilter(f"{here} names {field[:MAX_NAME]!r}, which can't be filtered by.", field=here)
    condition = _condition(str(operator), field, kind_of(field), value, f"{here}.{field}")
    if isinstance(condition, Contains):
        _spend(budget, path, len(condition.values) - 1)
    return condition


def _spend(budget: list[int], path: str, conditions: int) -> None:
    budget[0] -= conditions
    if budget[0] < 0:
        raise InvalidFilter(
            f"{path} is too large.",
            field=path,
            remedy=f"At most {MAX_DEPTH} levels and {MAX_CONDITIONS} conditions.",
        )


def _condition(operator: str, field: str, kind: FieldKind, value: Any, path: str) -> Filter:
    match operator, kind, value:
        case "eq", _, _ if _is_scalar(value, kind):
            return Eq(field, value)
        case "in", _, [*values] if 0 < len(values) <= MAX_CONDITIONS and all(_is_scalar(v, kind) for v in values):
            return In(field, tuple(values))
        case "contains", "keywords", [*values] if values and all(_is_scalar(v, kind) for v in values):
            return Contains(field, tuple(values))
        case "under", "uri", str():
            return Under(field, parse_uri(value, field=path))
        case "range", "number", dict() if value and value.keys() <= {"gte", "gt", "lte", "lt"}:
            if all(_is_scalar(bound, "number") for bound in value.values()):
                return Range(field, **{name: float(bound) for name, bound in value.items()})
    raise InvalidFilter(f"{path} has a value of the wrong shape for a {kind} field.", field=path)


def _is_scalar(value: object, kind: FieldKind) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**53
    return isinstance(value, str) and 0 < len(value) <= MAX_VALUE and not UNSTORABLE.search(value)
