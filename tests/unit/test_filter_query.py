"""The compiler from filters to Elasticsearch queries: what they mean on a real index, the contract tests say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidFilter
from contracts.filters import And, Contains, Eq, Filter, In, Not, Or, Range, Under, matches
from index.elastic.filter_query import query
from index.elastic.mapping import lineage

NOTHING: dict[str, Any] = {"match_none": {}}
A, B, C = ({"term": {"kind": value}} for value in "abc")


@pytest.mark.parametrize(
    ("condition", "compiled"),
    [
        (And(()), {"match_all": {}}),
        (Or(()), NOTHING),
        (Eq("category", "api"), {"term": {"category": "api"}}),
        (Eq("category", ""), NOTHING),
        (Eq("tags", ""), {"term": {"tags": ""}}),
        (In("category", ()), NOTHING),
        (In("category", ("x", "")), {"term": {"category": "x"}}),
        (In("depth", (1, 2.0, 2.5)), {"terms": {"depth": [1, 2]}}),
        (Eq("attrs.lang", "zh"), {"term": {"attrs.lang": "zh"}}),
        (Contains("tags", ("x", "y")), {"bool": {"filter": [{"term": {"tags": "x"}}, {"term": {"tags": "y"}}]}}),
        (Contains("tags", ()), NOTHING),
        (Under("uri", "strata://s/a*?"), {"term": {"lineage": "strata://s/a*?"}}),
        (
            Under("parent_uri", "strata://s/a"),
            {
                "bool": {
                    "should": [{"term": {"parent_uri": "strata://s/a"}}, {"prefix": {"parent_uri": "strata://s/a/"}}],
                    "minimum_should_match": 1,
                }
            },
        ),
        (Range("depth", gt=1, lte=3), {"range": {"depth": {"gte": 2, "lte": 3}}}),
        (Range("depth", gt=0.5), {"range": {"depth": {"gte": 1}}}),
        (Range("depth", gte=0.5, lt=1), NOTHING),
        (Range("depth"), {"exists": {"field": "depth"}}),
        (Range("depth", gte=-1e300, lt=1e300), {"exists": {"field": "depth"}}),
        (Range("depth", gte=1e300), NOTHING),
    ],
)
def test_conditions_compile_to_queries(condition: Filter, compiled: dict[str, Any]) -> None:
    assert query(condition) == compiled


@pytest.mark.parametrize(
    ("condition", "compiled"),
    [
        (And((Eq("kind", "a"),)), A),
        (Or((Eq("kind", "a"),)), A),
        (And((Eq("kind", "a"), And((Eq("kind", "b"), And(()))))), {"bool": {"filter": [A, B]}}),
        (
            And((Eq("kind", "a"), Not(Eq("kind", "b")), Not(Eq("kind", "c")))),
            {"bool": {"filter": [A], "must_not": [B, C]}},
        ),
        (Not(Not(Eq("kind", "a"))), {"bool": {"must_not": [{"bool": {"must_not": [A]}}]}}),
        (
            And((Eq("kind", "a"), Or((Eq("kind", "b"), Eq("kind", "c"))))),
            {"bool": {"filter": [A, {"bool": {"should": [B, C], "minimum_should_match": 1}}]}},
        ),
    ],
)
def test_and_takes_in_what_can_stand_beside_its_own_conditions(condition: Filter, compiled: dict[str, Any]) -> None:
    assert query(condition) == compiled


@pytest.mark.parametrize(
    "condition",
    [
        Eq("category", "lone \ud800"),
        Under("uri", "strata://\udfff"),
        Eq("nowhere", "x"),
        Eq("attrs.a.b", "x"),
        Eq("depth", "1"),
        Eq("category", 1),
        Contains("category", ("x",)),
        Under("category", "x"),
        Under("uri", ""),
        Range("category", gte=1),
        Range("depth", gte=float("nan")),
    ],
)
def test_what_fits_no_field_is_refused(condition: Filter) -> None:
    with pytest.raises(InvalidFilter):
        query(condition)


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(InvalidFilter, match="dict is no filter"):
        query({"match_all": {}})  # type: ignore[arg-type]


class FakeElastic:
    """Evaluates the queries that the compiler writes on one record, as Elasticsearch does on what it has indexed."""

    def __init__(self, record: dict[str, Any]) -> None:
        flat = {**record, **{f"attrs.{name}": values for name, values in record["attrs"].items()}}
        flat["lineage"] = lineage(record["uri"])
        lists = {field: value if isinstance(value, list) else [value] for field, value in flat.items()}
        # The writer leaves empty strings out of fields of one value.
        self._terms = {field: terms for field, terms in lists.items() if flat[field] != ""}

    def matches(self, compiled: dict[str, Any]) -> bool:
        ((kind, body),) = compiled.items()
        if kind in {"match_all", "match_none"}:
            return kind == "match_all"
        if kind == "bool":
            assert body.keys() <= {"filter", "must_not", "should", "minimum_should_match"}
            assert ("should" in body) == (body.get("minimum_should_match") == 1)
            return (
                all(map(self.matches, body.get("filter", [])))
                and not any(map(self.matches, body.get("must_not", [])))
                and ("should" not in body or any(map(self.matches, body["should"])))
            )
        if kind == "exists":
            return bool(self._terms.get(body["field"]))
        ((field, operand),) = body.items()
        terms = self._terms.get(field, [])
        match kind:
            case "term":
                return operand in terms
            case "terms":
                return any(term in operand for term in terms)
            case "prefix":
                return any(term.startswith(operand) for term in terms)
            case "range":
                assert operand.keys() <= {"gte", "lte"}
                assert all(type(bound) is int for bound in operand.values())
                low, high = operand.get("gte", -(2**63)), operand.get("lte", 2**63 - 1)
                return any(low <= term <= high for term in terms)
        raise AssertionError(f"the compiler writes no {kind}")


words = st.sampled_from(["", "a", "b", "a/b", "*"])
uris = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map(lambda parts: "/".join(["strata://s", *parts]))
numbers = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])
bounds = st.none() | st.floats(-4, 4) | st.sampled_from([-1e300, 1e300, -(2.0**63), 2.0**63])
records = st.fixed_dictionaries(
    {
        "category": words,
        "kind": words,
        "tags": st.lists(words, max_size=3),
        "attrs": st.dictionaries(st.sampled_from(["x", "y"]), st.lists(words, max_size=2)),
        "uri": uris,
        "parent_uri": uris | st.just(""),
        "depth": numbers,
        "expires_at": numbers,
    }
)
one_word = st.sampled_from(["category", "kind"])
many_words = st.sampled_from(["tags", "attrs.x", "attrs.y"])
uri_fields = st.sampled_from(["uri", "parent_uri"])
number_fields = st.sampled_from(["depth", "expires_at"])
conditions = (
    st.builds(Eq, one_word | many_words, words)
    | st.builds(Eq, uri_fields, uris)
    | st.builds(Eq, number_fields, numbers | st.floats(-4, 4))
    | st.builds(In, one_word | many_words, st.lists(words, max_size=3).map(tuple))
    | st.builds(In, number_fields, st.lists(numbers, max_size=3).map(tuple))
    | st.builds(Contains, many_words, st.lists(words, max_size=3).map(tuple))
    | st.builds(Under, uri_fields, uris)
    | st.builds(Range, number_fields, gte=bounds, gt=bounds, lte=bounds, lt=bounds)
)
filters = st.recursive(
    conditions,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=8,
)


@given(condition=filters, record=records)
def test_a_query_matches_just_what_the_filter_matches(condition: Filter, record: dict[str, Any]) -> None:
    """Design decision 4: the compilers are tested against the reference meaning."""
    assert FakeElastic(record).matches(query(condition)) == matches(condition, record)
