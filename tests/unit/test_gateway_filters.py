"""The filter language: what it means, what is refused, and that nothing a caller writes widens a scope."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidFilter
from contracts.filters import matches
from gateway.dsl import RESERVED, compiled
from gateway.requests import ScopeName
from gateway.scopes import conditions, merged

SESSIONS = ("chat:1", "chat:2", "book:1", "book:2")
RECORDS = [
    {
        "attrs": {
            "session_id": [session] if session in SESSIONS[1:] else [],
            "conversation_id": ["1"] if session == "chat:1" else [],
            "sender_id": senders,
            "parent_type": parent,
        },
        "created_at": created,
    }
    for session in SESSIONS
    for senders in ([], ["ann"], ["ann", "bob"])
    for parent in ([], ["memcell"])
    for created in (0, 1_767_225_600_000)
]


def found(raw: Any) -> list[int]:
    condition = compiled(raw)
    return [number for number, record in enumerate(RECORDS) if matches(condition, record)]


def where(test: Any) -> list[int]:
    return [number for number, record in enumerate(RECORDS) if test(record["attrs"], record["created_at"])]


def session_of(attrs: dict[str, list[str]]) -> str:
    return attrs["session_id"][0] if attrs["session_id"] else f"chat:{attrs['conversation_id'][0]}"


@pytest.mark.parametrize(
    ("raw", "test"),
    [
        ({"session_id": "chat:1"}, lambda a, _: session_of(a) == "chat:1"),
        ({"session_id": {"eq": "chat:2"}}, lambda a, _: session_of(a) == "chat:2"),
        ({"session_id": {"ne": "chat:1"}}, lambda a, _: session_of(a) != "chat:1"),
        ({"session_id": {"in": ["chat:1", "book:2"]}}, lambda a, _: session_of(a) in {"chat:1", "book:2"}),
        ({"sender_id": "bob"}, lambda a, _: "bob" in a["sender_id"]),
        ({"sender_id": {"in": ["bob", "eve"]}}, lambda a, _: "bob" in a["sender_id"]),
        ({"parent_type": {"ne": "memcell"}}, lambda a, _: not a["parent_type"]),
        ({"timestamp": {"gte": "2026-01-01T00:00:00Z"}}, lambda _, t: t > 0),
        ({"timestamp": {"gt": "2026-01-01T01:00:00+01:00"}}, lambda _, t: False),
        ({"timestamp": {"lt": 1_767_225_600_000, "gte": 0}}, lambda _, t: t == 0),
        ({"timestamp": "2026-01-01"}, lambda _, t: t > 0),
        ({"timestamp": {"in": [0, 5]}}, lambda _, t: t == 0),
        ({"sender_id": "ann", "timestamp": 0}, lambda a, t: "ann" in a["sender_id"] and t == 0),
        (
            {"OR": [{"sender_id": "bob"}, {"AND": [{"session_id": "chat:1"}, {"timestamp": {"lte": 0}}]}]},
            lambda a, t: "bob" in a["sender_id"] or (session_of(a) == "chat:1" and t == 0),
        ),
        (
            {"OR": [{"sender_id": "bob"}], "session_id": "chat:1"},
            lambda a, _: "bob" in a["sender_id"] and session_of(a) == "chat:1",
        ),
    ],
)
def test_a_filter_means_what_it_says(raw: Any, test: Any) -> None:
    assert found(raw) == where(test)


def nested(depth: int) -> Any:
    return {"sender_id": "a"} if depth == 0 else {"AND": [nested(depth - 1)]}


@pytest.mark.parametrize(
    "raw",
    [
        *({name: "x"} for name in sorted(RESERVED)),
        {},
        [],
        "session_id",
        {"colour": "red"},
        {"and": [{"sender_id": "a"}]},
        {"AND": []},
        {"OR": {}},
        {"OR": [{}]},
        {"OR": ["x"]},
        {"AND": [{"sender_id": "a"}, {"owner_id": "b"}]},
        {"session_id": {}},
        {"session_id": {"like": "x"}},
        {"session_id": {"gt": "x"}},
        {"session_id": {"in": []}},
        {"session_id": {"in": "x"}},
        {"session_id": {"in": ["x", 1]}},
        {"session_id": ["x"]},
        {"session_id": None},
        {"session_id": 1},
        {"session_id": ""},
        {"session_id": "a\0"},
        {"session_id": "\ud800"},
        {"sender_id": {"ne": "a"}},
        {"timestamp": "yesterday"},
        {"timestamp": True},
        {"timestamp": {"gt": []}},
        {"timestamp": {"gt": float("nan")}},
        {"timestamp": 1e300},
        {"sender_id": {"in": ["a"] * 257}},
        {"OR": [{"sender_id": {"in": ["a"] * 200}}, {"sender_id": {"in": ["a"] * 200}}]},
        nested(9),
    ],
    ids=repr,
)
def test_what_is_malformed_is_refused_with_the_place(raw: Any) -> None:
    """G8: a caller's mistake, before any search."""
    with pytest.raises(InvalidFilter) as refusal:
        compiled(raw)
    assert 400 <= refusal.value.http_status < 500
    assert refusal.value.field.startswith("filters")


def test_the_largest_filter_is_understood_beside_a_scope_too() -> None:
    deep, wide = nested(8), {"sender_id": {"in": ["a"] * 256}}
    sessions = {"session_id": {"in": ["chat:1"] * 256}}
    for custom in (deep, wide):
        assert compiled(custom)
        assert compiled(merged(custom, sessions), scoped=True)


@pytest.mark.parametrize(
    ("custom", "scope", "sent"),
    [
        ({"sender_id": "a"}, {"session_id": "chat:1"}, {"AND": [{"sender_id": "a"}, {"session_id": "chat:1"}]}),
        ({"sender_id": "a"}, None, {"sender_id": "a"}),
        (None, {"session_id": "chat:1"}, {"session_id": "chat:1"}),
        ({}, {"session_id": "chat:1"}, {"session_id": "chat:1"}),
        (None, None, None),
        ({}, None, None),
    ],
)
def test_custom_filters_and_the_scope_meet_under_one_and(custom: Any, scope: Any, sent: Any) -> None:
    """G4; acceptance 4 of seed 2."""
    assert merged(custom, scope) == sent


def test_scopes_have_the_conditions_of_g4() -> None:
    """G4."""
    assert conditions("current_chat", "7", [], 2) == [{"session_id": "chat:7"}]
    assert conditions("current_chat", None, [], 2) == conditions("current_chat", "", [], 2) == []
    batches = [{"session_id": {"in": ["a", "b"]}}, {"session_id": {"in": ["c"]}}]
    assert conditions("resources", None, ["a", "b", "c"], 2) == batches
    assert conditions("resources", "7", [], 2) == []
    assert conditions("all_user_memory", "7", ["a"], 2) == [None]


VALUES = st.sampled_from([*SESSIONS, "ann", "bob", "memcell"])
TIMES = st.sampled_from([0, 1_767_225_600_000, "2026-01-01"])
CLAUSES = st.one_of(
    st.builds(
        lambda field, op, value: {field: {op: [value] if op == "in" else value}},
        st.sampled_from(["session_id", "parent_type", "parent_id"]),
        st.sampled_from(["eq", "ne", "in"]),
        VALUES,
    ),
    st.builds(lambda value: {"sender_id": value}, VALUES),
    st.builds(lambda op, value: {"timestamp": {op: value}}, st.sampled_from(["gt", "lte", "ne"]), TIMES),
)
FILTERS = st.recursive(
    CLAUSES,
    lambda inner: st.builds(
        lambda op, parts: {op: parts}, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["AND", "OR", "session_id", "in", "ne", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)
SCOPES: list[tuple[ScopeName, str]] = [("current_chat", "1"), ("resources", ""), ("all_user_memory", "")]


@given(
    custom=FILTERS | st.dictionaries(st.sampled_from(["AND", "OR", "session_id"]), JSON), scope=st.sampled_from(SCOPES)
)
def test_no_custom_filter_widens_a_scope(custom: Any, scope: tuple[ScopeName, str]) -> None:
    """G4; acceptance 4: what is found with any custom filter is found without one too, or the filter is refused."""
    for condition in conditions(scope[0], scope[1], SESSIONS[2:], 1):
        filters = merged(custom, condition)
        try:
            narrowed = found(filters) if filters else where(lambda *_: True)
        except InvalidFilter:
            continue
        assert set(narrowed) <= set(found(condition) if condition else where(lambda *_: True))
