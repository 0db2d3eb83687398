"""The filter algebra (design decision 4)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidFilter
from contracts.filters import (
    CALLER_FIELDS,
    FIELDS,
    MAX_CONDITIONS,
    MAX_DEPTH,
    And,
    Contains,
    Eq,
    Filter,
    In,
    Not,
    Or,
    Range,
    Under,
    all_of,
    kind_of,
    matches,
    parse_filter,
)

RECORD: dict[str, Any] = {
    "category": "guide",
    "kind": "",
    "uri": "strata://shared/a/b",
    "depth": 2,
    "tags": ("x", "y"),
    "attrs": {"lang": ("zh",)},
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Eq("category", "guide"), True),
        (Eq("category", "Guide"), False),
        (Eq("kind", ""), False),
        (Eq("status", "active"), False),
        (Not(Eq("status", "active")), True),
        (In("category", ("a", "guide")), True),
        (In("category", ()), False),
        (Eq("tags", "x"), True),
        (In("tags", ("z", "y")), True),
        (Contains("tags", ("x", "y")), True),
        (Contains("tags", ("x", "z")), False),
        (Contains("tags", ()), False),
        (Eq("attrs.lang", "zh"), True),
        (Eq("attrs.other", "zh"), False),
        (Range("depth", gte=2, lt=3), True),
        (Range("depth", gt=2), False),
        (Range("updated_at", gte=0), False),
        (Under("uri", "strata://shared/a"), True),
        (Under("uri", "strata://shared/a/b"), True),
        (Under("uri", "strata://shared/a/b/c"), False),
        (Under("uri", "strata://shared/"), False),
        (Under("parent_uri", "strata://shared"), False),
        (And(()), True),
        (Or(()), False),
    ],
)
def test_matches_gives_each_operator_its_meaning(condition: Filter, holds: bool) -> None:
    assert matches(condition, RECORD) is holds


def test_a_subtree_is_not_what_merely_starts_alike() -> None:
    assert not matches(Under("uri", "strata://shared/a"), {"uri": "strata://shared/ab"})


def test_all_of_flattens_and_leaves_out_what_is_not_there() -> None:
    a, b, c = Eq("category", "a"), Eq("category", "b"), Eq("category", "c")
    assert all_of(And((a, b)), None, c) == And((a, b, c))
    assert all_of(None, a) == a
    assert all_of() == And(())


JSON_FILTERS: list[tuple[Any, Filter]] = [
    ({"eq": {"category": "function"}}, Eq("category", "function")),
    ({"in": {"depth": [1, 2.5]}}, In("depth", (1, 2.5))),
    ({"range": {"updated_at": {"gte": 5, "lt": 7}}}, Range("updated_at", gte=5.0, lt=7.0)),
    ({"under": {"uri": "strata://shared/python/"}}, Under("uri", "strata://shared/python")),
    ({"contains": {"tags": ["a", "b"]}}, Contains("tags", ("a", "b"))),
    ({"eq": {"attrs.language": "zh"}}, Eq("attrs.language", "zh")),
    ({"not": {"eq": {"tags": "x"}}}, Not(Eq("tags", "x"))),
    (
        {"and": [{"eq": {"kind": "class"}}, {"or": [{"eq": {"kind": "a"}}, {"eq": {"kind": "b"}}]}]},
        And((Eq("kind", "class"), Or((Eq("kind", "a"), Eq("kind", "b"))))),
    ),
]


@pytest.mark.parametrize(("raw", "condition"), JSON_FILTERS)
def test_the_json_form_is_read(raw: Any, condition: Filter) -> None:
    assert parse_filter(raw) == condition


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (None, "filter"),
        ([], "filter"),
        ({}, "filter"),
        ({"eq": {"kind": "a"}, "in": {"kind": ["a"]}}, "filter"),
        ({"like": {"kind": "a"}}, "filter.like"),
        ({"and": []}, "filter.and"),
        ({"and": {"eq": {"kind": "a"}}}, "filter.and"),
        ({"and": [{"eq": {"kind": "a"}}, {"eq": {"colour": "red"}}]}, "filter.and[1].eq"),
        ({"not": []}, "filter.not"),
        ({"eq": {"kind": "a", "category": "b"}}, "filter.eq"),
        ({"eq": {"kind": None}}, "filter.eq.kind"),
        ({"eq": {"kind": ""}}, "filter.eq.kind"),
        ({"eq": {"kind": ["a"]}}, "filter.eq.kind"),
        ({"eq": {"kind": "a\x00"}}, "filter.eq.kind"),
        ({"eq": {"kind": "a" * 1025}}, "filter.eq.kind"),
        ({"eq": {"depth": "1"}}, "filter.eq.depth"),
        ({"eq": {"depth": True}}, "filter.eq.depth"),
        ({"eq": {"depth": float("nan")}}, "filter.eq.depth"),
        ({"in": {"kind": []}}, "filter.in.kind"),
        ({"in": {"kind": "ab"}}, "filter.in.kind"),
        ({"range": {"kind": {"gte": 1}}}, "filter.range.kind"),
        ({"range": {"depth": {}}}, "filter.range.depth"),
        ({"range": {"depth": {"above": 1}}}, "filter.range.depth"),
        ({"range": {"depth": {"gte": float("inf")}}}, "filter.range.depth"),
        ({"contains": {"kind": ["a"]}}, "filter.contains.kind"),
        ({"contains": {"tags": ["a"] * (MAX_CONDITIONS + 1)}}, "filter"),
        ({"eq": {"kind": "a\ud800"}}, "filter.eq.kind"),
        ({"eq": {"attrs." + "a" * 1_000: "x"}}, "filter.eq"),
        ({"o" * 1_000: []}, f"filter.{'o' * 128}"),
        ({"under": {"category": "strata://shared"}}, "filter.under.category"),
    ],
)
def test_what_is_not_understood_is_an_error_that_names_the_place(raw: Any, path: str) -> None:
    with pytest.raises(InvalidFilter) as refusal:
        parse_filter(raw)
    assert refusal.value.field == path


@pytest.mark.parametrize("field", sorted(set(FIELDS) - CALLER_FIELDS))
def test_a_caller_can_not_name_fields_of_the_system_filter(field: str) -> None:
    """C20."""
    with pytest.raises(InvalidFilter):
        parse_filter({"eq": {field: 1 if FIELDS[field] == "number" else "x"}})


@pytest.mark.parametrize("name", ["attrs.", "attrs.a b", "attrs.a'b", "attrs.a.b", "attrs.a=b", "attrs", "nope", ""])
def test_names_that_are_no_field_have_no_kind(name: str) -> None:
    with pytest.raises(InvalidFilter):
        kind_of(name)


def test_depth_and_number_of_conditions_are_bounded() -> None:
    leaf: Any = {"eq": {"kind": "a"}}
    deep = leaf
    for _ in range(MAX_DEPTH):
        deep = {"not": deep}
    assert parse_filter(deep)
    with pytest.raises(InvalidFilter, match="too large"):
        parse_filter({"not": deep})
    assert parse_filter({"or": [leaf] * (MAX_CONDITIONS - 1)})
    with pytest.raises(InvalidFilter, match="too large"):
        parse_filter({"or": [leaf] * MAX_CONDITIONS})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["and", "or", "not", "eq", "in", "range", "under", "tags", "uri"]), inner, max_size=2
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_read_or_refused_and_nothing_else(raw: Any) -> None:
    try:
        condition = parse_filter(raw)
    except InvalidFilter as refusal:
        assert refusal.field
    else:
        assert matches(Or((condition, Not(condition))), RECORD)


values = st.sampled_from(["guide", "other", "x", "zh"])
leaves = st.one_of(
    st.builds(Eq, st.sampled_from(["category", "kind", "status", "tags", "attrs.lang"]), values),
    st.builds(In, st.sampled_from(["category", "tags"]), st.lists(values, max_size=2).map(tuple)),
    st.builds(Range, st.sampled_from(["depth", "updated_at"]), gte=st.none() | st.integers(0, 4)),
)
filters = st.recursive(
    leaves,
    lambda inner: st.builds(Not, inner) | st.builds(And, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=5,
)


@given(a=filters, b=filters)
def test_the_algebra_obeys_its_laws(a: Filter, b: Filter) -> None:
    def holds(condition: Filter) -> bool:
        return matches(condition, RECORD)

    assert holds(Not(a)) is not holds(a)
    assert holds(all_of(a, b)) is (holds(a) and holds(b))
    assert holds(Or((a, b))) is (holds(a) or holds(b))
    assert holds(Not(And((a, b)))) is holds(Or((Not(a), Not(b))))


@given(a=filters, b=filters)
def test_a_further_filter_only_narrows(a: Filter, b: Filter) -> None:
    """C20."""
    if matches(all_of(a, b), RECORD):
        assert matches(a, RECORD)


@pytest.mark.parametrize("field", ["category", "tags", "uri", "attrs.lang"])
def test_a_range_on_a_field_that_is_no_number_is_refused_by_the_meaning_too(field: str) -> None:
    with pytest.raises(InvalidFilter, match="no number"):
        matches(Range(field, gte=1), RECORD)
