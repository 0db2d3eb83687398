"""The compiler from filters to LanceDB's SQL: text only; what it means is tested on the real index."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidFilter
from contracts.filters import And, Contains, Eq, Filter, In, Not, Or, Range, Under
from index.embedded.filter_sql import literal, one_of, where


@pytest.mark.parametrize(
    ("condition", "sql"),
    [
        (And(()), "true"),
        (Or(()), "false"),
        (Eq("category", "api"), "category IN ('api')"),
        (Eq("category", ""), "false"),
        (In("category", ()), "false"),
        (In("depth", (1, 2.0, 2.5)), "depth IN (1, 2)"),
        (Eq("tags", "x"), "(array_has(tags, 'x'))"),
        (Eq("attrs.lang", "zh"), "(array_has(attrs, 'lang=zh'))"),
        (Contains("tags", ("x", "y")), "((array_has(tags, 'x')) AND (array_has(tags, 'y')))"),
        (Contains("tags", ()), "false"),
        (Under("uri", "strata://s/a%_"), "(uri = 'strata://s/a%_' OR starts_with(uri, 'strata://s/a%_/'))"),
        (Range("depth", gt=1, lte=3), "(depth >= 2 AND depth <= 3)"),
        (Range("depth", gt=0.5, lt=1.5), "(depth >= 1 AND depth <= 1)"),
        (Range("depth", gte=0.5, lt=1), "false"),
        (Range("depth"), "true"),
        (Range("depth", gte=-1e300, lt=1e300), "true"),
        (Range("depth", gte=1e300), "false"),
        (Not(Or((Eq("kind", "a"), Eq("kind", "b")))), "(NOT (kind IN ('a') OR kind IN ('b')))"),
    ],
)
def test_filters_compile_to_sql(condition: Filter, sql: str) -> None:
    assert where(condition) == sql


@given(st.text().filter(lambda text: text.isprintable()))
def test_a_literal_never_ends_before_its_end(text: str) -> None:
    quoted = literal(text)
    assert re.fullmatch(r"'(?:[^']|'')*'", quoted, re.DOTALL)
    assert quoted[1:-1].replace("''", "'") == text


@given(field=st.text(min_size=1), value=st.text(min_size=1))
def test_only_known_columns_and_quoted_values_reach_the_sql(field: str, value: str) -> None:
    try:
        sql = where(Or((Eq(field, value), Eq(f"attrs.{field}", value))))
    except InvalidFilter:
        return
    outside = re.sub(r"'(?:[^']|'')*'", "''", sql)
    assert re.fullmatch(r"\([a-z_]+ IN \(''\) OR \(array_has\(attrs, ''\)\)\)", outside)


@pytest.mark.parametrize("value", ["lone \ud800", "\udfff"])
def test_text_that_no_record_can_hold_is_refused(value: str) -> None:
    with pytest.raises(InvalidFilter, match="Unicode"):
        where(Eq("category", value))


def test_lists_of_keys_are_quoted_too() -> None:
    assert one_of("uri", ["a'b", "c"]) == "uri IN ('a''b', 'c')"
    assert one_of("revision", [1, 2]) == "revision IN (1, 2)"
    assert one_of("uri", []) == "false"
