"""The filter language of the upstream API, compiled to the filter algebra for searches of the graph.

::

    {"AND": [{"session_id": {"in": ["chat:1", "chat:2"]}}, {"OR": [{"sender_id": "bob"}, {"parent_id": "m1"}]}]}
    {"timestamp": {"gte": "2026-01-01T00:00:00Z", "lt": 1798761600000}, "parent_type": {"ne": "memcell"}}

Entries beside one another all hold. A plain value means ``eq``. A record without a field satisfies ``ne`` and nothing
else. Whatever is not understood is an error before any search.

===========================  =====================  ====================================================
field                        operators              of a record
===========================  =====================  ====================================================
session_id                   eq, ne, in             see ``gateway.memories``
parent_type, parent_id       eq, ne, in             attributes of the same name
sender_id                    eq, in                 see there; a record may have several
timestamp                    eq, ne, in,            when it was made: milliseconds since the epoch or ISO 8601,
                             gt, gte, lt, lte       which means UTC where it names no zone
===========================  =====================  ====================================================
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from contracts.errors import InvalidFilter
from contracts.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUE, And, Eq, Filter, In, Not, Or, Range, all_of
from contracts.text import UNSTORABLE
from gateway.memories import from_senders, in_sessions

# What a request names beside its filters, and what belongs to the system.
RESERVED = frozenset(
    {"owner_id", "owner_type", "user_id", "agent_id", "app_id", "project_id", "account_id", "owner_space", "status"}
)
_BOUNDS = frozenset({"gt", "gte", "lt", "lte"})
_OPERATORS: Mapping[str, frozenset[str]] = {
    "session_id": frozenset({"eq", "ne", "in"}),
    "parent_type": frozenset({"eq", "ne", "in"}),
    "parent_id": frozenset({"eq", "ne", "in"}),
    "sender_id": frozenset({"eq", "in"}),
    "timestamp": frozenset({"eq", "ne", "in"}) | _BOUNDS,
}
_MAX_NAME = 64
_MAX_MILLIS = 2**53


def compiled(raw: object, *, scoped: bool = False) -> Filter:
    """The filter that ``raw`` means.

    Args:
        raw: The decoded JSON.
        scoped: Whether a scope's condition may stand beside the caller's: one level and a batch of sessions more.

    Raises:
        InvalidFilter: Anything not understood, with the path to it; at most 8 levels and 256 conditions are.
    """
    return _node(raw, "filters", -1 if scoped else 0, [2 * MAX_CONDITIONS if scoped else MAX_CONDITIONS])


def _node(raw: object, path: str, depth: int, budget: list[int]) -> Filter:
    if depth > MAX_DEPTH:
        raise _too_large(path)
    if not isinstance(raw, Mapping) or not raw:
        raise InvalidFilter(f"{path} must be an object with one or more conditions.", field=path)
    return all_of(*(_entry(str(name), value, path, depth, budget) for name, value in raw.items()))


def _entry(name: str, value: object, path: str, depth: int, budget: list[int]) -> Filter:
    here = f"{path}.{name[:_MAX_NAME]}"
    if name in {"AND", "OR"}:
        if not isinstance(value, list) or not value:
            raise InvalidFilter(f"{here} must be a list of one or more objects.", field=here)
        parts = tuple(_node(part, f"{here}[{i}]", depth + 1, budget) for i, part in enumerate(value))
        return And(parts) if name == "AND" else Or(parts)
    if name in RESERVED:
        raise InvalidFilter(
            f"{here} is reserved.", field=here, remedy="Name owner, app and project in the request itself."
        )
    if name not in _OPERATORS:
        raise InvalidFilter(f"{here} is no field.", field=here, remedy=f"Use {', '.join(_OPERATORS)}, AND, OR.")
    operators = value if isinstance(value, Mapping) else {"eq": value}
    if not operators:
        raise InvalidFilter(f"{here} names no operator.", field=here)
    return all_of(*(_condition(name, str(op), operand, here, budget) for op, operand in operators.items()))


def _condition(field: str, operator: str, operand: object, path: str, budget: list[int]) -> Filter:
    here = f"{path}.{operator[:_MAX_NAME]}"
    if operator not in _OPERATORS[field]:
        raise InvalidFilter(
            f"{here} is no operator of {field}.", field=here, remedy=f"Use {', '.join(sorted(_OPERATORS[field]))}."
        )
    if operator == "in" and (not isinstance(operand, list) or not operand):
        raise InvalidFilter(f"{here} must be a list of one or more values.", field=here)
    operands = operand if operator == "in" and isinstance(operand, list) else [operand]
    budget[0] -= len(operands)
    if budget[0] < 0:
        raise _too_large(path)
    if field == "timestamp":
        moments = [_millis(each, here) for each in operands]
        if operator in _BOUNDS:
            return Range("created_at", **{operator: float(moments[0])})
        found: Filter = In("created_at", tuple(moments))
    else:
        found = _MEANINGS[field](tuple(_text(each, here) for each in operands))
    return Not(found) if operator == "ne" else found


def _attribute(name: str) -> Callable[[tuple[str, ...]], Filter]:
    def has_one_of(values: tuple[str, ...]) -> Filter:
        return Eq(f"attrs.{name}", values[0]) if len(values) == 1 else In(f"attrs.{name}", values)

    return has_one_of


_MEANINGS: Mapping[str, Callable[[tuple[str, ...]], Filter]] = {
    "session_id": in_sessions,
    "sender_id": from_senders,
    **{name: _attribute(name) for name in ("parent_type", "parent_id")},
}


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_VALUE or UNSTORABLE.search(value):
        raise InvalidFilter(f"{path} must be a text of 1..{MAX_VALUE} characters.", field=path)
    return value


def _millis(value: Any, path: str) -> int:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
        except (ValueError, OverflowError):
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_MILLIS:
        raise InvalidFilter(f"{path} must be milliseconds since the epoch, or a time by ISO 8601.", field=path)
    return round(value)


def _too_large(path: str) -> InvalidFilter:
    return InvalidFilter(
        f"{path} is too large.", field=path, remedy=f"At most {MAX_DEPTH} levels and {MAX_CONDITIONS} conditions."
    )
