"""Filters mean the same on every backend as ``contracts.filters.matches`` (design decisions 4 and 5)."""

import itertools
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.filters import And, Contains, Eq, Filter, In, Not, Or, Range, Under
from contracts.ports import Embeddable
from contracts.records import Document, Node
from tests.contract.conftest import Index
from tests.contract.corpus import HOSTILE, MODEL, Reference, ask, node, uris, vectors

SOURCES = ("handbook", "it's a source")
accounts = (f"acme {number}" for number in itertools.count())

text = st.sampled_from(HOSTILE) | st.sampled_from(["guide", "api", ""]) | st.text(max_size=6).filter(str.isprintable)
number = st.sampled_from([0, 1, 2, 5, -3, 2**53, -(2**53)])
bound = number | st.sampled_from([0.5, 1.0, 4.999, -2.5, 1e300, -1e300])
segment = st.sampled_from(["a", "b", "ab", "a_b", "a-b", "a.b", "中", "it's", "A", "a b"])
path = st.lists(segment, min_size=1, max_size=4).map("/".join)
attribute = st.sampled_from(["lang", "a", "语言", "x_1"])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    made = node(draw(path), "common words")
    return msgspec.structs.replace(
        made,
        parent_uri=draw(st.sampled_from([made.parent_uri, ""])),
        context_type=draw(st.sampled_from(["memory", "skill", "resource"])),
        category=draw(text),
        kind=draw(st.sampled_from(["section", "turn"]) | text),
        status=draw(st.sampled_from(["active", "archived"])),
        tags=tuple(draw(st.lists(text, max_size=3))),
        attrs=draw(st.dictionaries(attribute, st.lists(text, max_size=2).map(tuple), max_size=2)),
        created_at=draw(number),
        updated_at=draw(number),
        expires_at=draw(number),
    )


keywords = st.sampled_from(
    ["owner_space", "context_type", "category", "kind", "status", "source_id", "uri", "parent_uri"]
)
many = st.just("tags") | attribute.map("attrs.{}".format)
numbers = st.sampled_from(["level", "depth", "created_at", "updated_at", "expires_at"])
known = st.sampled_from(["shared", "memory", "skill", "section", "active", *SOURCES]) | path.map(
    "strata://shared/{}".format
)
value = text | known
bounds = st.fixed_dictionaries({}, optional=dict.fromkeys(("gte", "gt", "lte", "lt"), bound))
condition = st.one_of(
    st.builds(Eq, keywords | many, value),
    st.builds(Eq, numbers, bound),
    st.builds(In, keywords | many, st.lists(value, max_size=3).map(tuple)),
    st.builds(In, numbers, st.lists(bound, max_size=3).map(tuple)),
    st.builds(Contains, many, st.lists(text, max_size=2).map(tuple)),
    st.builds(Under, st.sampled_from(["uri", "parent_uri"]), path.map("strata://shared/{}".format)),
    st.builds(lambda field, limits: Range(field, **limits), numbers, bounds),
)
filters = st.recursive(
    condition,
    lambda parts: st.one_of(
        st.builds(And, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=6,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    found=st.lists(nodes(), min_size=1, max_size=8, unique_by=lambda node: node.uri),
    asked=st.lists(filters, min_size=1, max_size=6),
    source=st.sampled_from(SOURCES),
    data=st.data(),
)
async def test_both_recalls_return_just_the_records_that_match_and_so_does_their_live_metadata(
    shared_index: Index, found: list[Node], asked: list[Filter], source: str, data: Any
) -> None:
    reference = Reference(next(accounts), source)
    reference.put([Embeddable(Document("d", "print", tuple(found)), vectors(len(found)))])
    await shared_index.put(reference.account, source, list(reference.documents.values()), MODEL)
    # Values that are there, so that not all filters come back empty.
    uri = data.draw(st.sampled_from([node.uri for node in found]))
    asked = [*asked, Under("uri", uri), Not(Eq("uri", uri)), In("category", tuple(node.category for node in found))]
    asked += [Contains("tags", node.tags) for node in found]

    dense = await shared_index.recall([ask("", vectors(1)[0], account=reference.account, where=part) for part in asked])
    keyword = await shared_index.recall([ask("common", account=reference.account, where=part) for part in asked])

    live = await shared_index.meta(reference.account, [node.uri for node in found])
    for part, by_vector, by_word in zip(asked, dense, keyword, strict=True):
        expected = reference.matching(part)
        assert {uri for uri, node in live.items() if node.satisfies(part)} == expected
        assert uris(by_vector.hits) == expected
        assert uris(by_word.hits) == expected


async def test_a_filter_of_the_greatest_size_is_answered(shared_index: Index) -> None:
    account = next(accounts)
    made = [node(f"n{i}", "common", tags=(f"t{i}",)) for i in range(3)]
    await shared_index.put(account, "s", [Embeddable(Document("d", "p", tuple(made)), vectors(3))], MODEL)
    wide = Or(tuple(Eq("tags", f"t{i}") for i in range(2, 256)))
    deep: Filter = wide
    for _ in range(8):
        deep = Not(deep)
    (found, listed) = await shared_index.recall(
        [
            ask("common", account=account, where=deep),
            ask("common", account=account, where=In("uri", tuple(f"strata://shared/n{i}" for i in range(1, 1000)))),
        ]
    )
    assert uris(found.hits) == {"strata://shared/n2"}
    assert uris(listed.hits) == {"strata://shared/n1", "strata://shared/n2"}
