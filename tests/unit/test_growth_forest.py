"""Synthetic trees of notes: as many, as deep and as wide as they claim, and the same for the same seed."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import ConfigError
from contracts.ports import Embeddable
from contracts.query import CONTEXT_TYPES
from contracts.records import Node
from contracts.stages import PlanRequest
from contracts.uri import depth_of, parent_of, parse
from evaluation.growth.forest import Forest
from index.text import analyze
from stages.planner import Planner, PlannerConfig

FOREST = Forest(records=400, tenants=3, fan_out=5, depth=4, dimensions=16, seed=3)
FORESTS = st.builds(
    Forest,
    records=st.integers(7, 200),
    tenants=st.integers(1, 7),
    fan_out=st.integers(1, 30),
    depth=st.integers(1, 8),
    dimensions=st.just(8),
)
# The first tree makes the vocabulary.
UNHURRIED = settings(deadline=None, max_examples=50)


def documents(forest: Forest) -> dict[str, list[Embeddable]]:
    """All documents by account."""
    found: dict[str, list[Embeddable]] = {}
    for account_id, made in forest.parts():
        found.setdefault(account_id, []).extend(made)
    return found


def nodes(items: list[Embeddable]) -> list[Node]:
    return [node for item in items for node in item.document.nodes]


@UNHURRIED
@given(FORESTS)
def test_tenants_share_all_records_evenly(forest: Forest) -> None:
    """Issue 9: 1, 10 and 1,000 tenants."""
    sizes = [len(nodes(items)) for items in documents(forest).values()]
    assert len(sizes) == forest.tenants
    assert sum(sizes) == forest.records
    assert max(sizes) - min(sizes) <= 1


@UNHURRIED
@given(FORESTS)
def test_every_tree_but_a_tenants_last_has_exactly_the_fan_out_and_the_depth_asked_for(forest: Forest) -> None:
    """Issue 9: fan-out and depth of the tree."""
    for items in documents(forest).values():
        for item in items[:-1]:
            children = Counter(node.parent_uri for node in item.document.nodes[1:])
            assert set(children.values()) <= {forest.fan_out}
            assert max(depth_of(node.uri) for node in item.document.nodes) == forest.depth
            assert len(item.document.nodes) == forest.tree
        assert len(items[-1].document.nodes) <= forest.tree


@UNHURRIED
@given(FORESTS)
def test_parents_are_in_the_same_document_and_know_that_they_are_parents(forest: Forest) -> None:
    for items in documents(forest).values():
        assert len({node.uri for node in nodes(items)}) == len(nodes(items))
        for item in items:
            root, *others = item.document.nodes
            assert root.parent_uri == ""
            parents = {node.parent_uri for node in others}
            for node in item.document.nodes:
                assert parse(node.uri) == node.uri
                assert node.has_children == (node.uri in parents)
            assert all(node.parent_uri == parent_of(node.uri) for node in others)
            assert parents <= {node.uri for node in item.document.nodes}


def test_the_same_seed_makes_the_same_records_and_questions() -> None:
    one, same, other = (documents(forest) for forest in (FOREST, FOREST, msgspec.structs.replace(FOREST, seed=4)))
    for account_id, items in one.items():
        assert [item.document for item in items] == [item.document for item in same[account_id]]
        for item, again in zip(items, same[account_id], strict=True):
            assert np.array_equal(item.vectors, again.vectors)
    asked = [[question.text for question in forest.questions(9)] for forest in (FOREST, FOREST)]
    assert asked[0] == asked[1] != [question.text for question in msgspec.structs.replace(FOREST, seed=4).questions(9)]
    assert [nodes(items)[0].content for items in one.values()] != [nodes(items)[0].content for items in other.values()]


def test_no_two_notes_are_the_same_and_their_vectors_have_length_1() -> None:
    items = [item for found in documents(FOREST).values() for item in found]
    assert len({node.content for node in nodes(items)}) == FOREST.records
    for item in items:
        assert item.vectors.shape == (len(item.document.nodes), FOREST.dimensions)
        assert np.linalg.norm(item.vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_notes_are_short_in_two_languages_and_open_with_their_abstract() -> None:
    found = nodes([item for items in documents(FOREST).values() for item in items])
    for node in found:
        assert node.content.startswith(node.abstract)
        assert node.content.endswith((".", "。"))
        # jieba may join or cut the words of a note anew.
        assert 5 <= len(analyze(node.content).words) <= 60
    chinese = [sum("一" <= char <= "鿿" for char in node.content) / len(node.content) for node in found]
    assert sum(share > 0.5 for share in chinese) > 50
    assert sum(share < 0.3 for share in chinese) > 50
    assert {node.context_type for node in found} == set(CONTEXT_TYPES)


def test_a_question_is_nearer_to_a_record_of_its_account_than_to_most() -> None:
    stored = documents(FOREST)
    for question in FOREST.questions(20):
        vectors = np.concatenate([item.vectors for item in stored[question.account_id]])
        cosines = vectors @ question.vector
        assert cosines.max() > np.median(cosines) + 0.3


async def test_about_half_of_the_questions_tell_the_planner_a_single_context_type() -> None:
    planner, counts = Planner(PlannerConfig()), Counter[int]()
    for question in FOREST.questions(200):
        ctx = RequestContext(question.account_id)
        plan = await planner(ctx, Deadline.after(60), PlanRequest(question.text, 10))
        counts[len(plan.queries)] += 1
    assert counts.keys() == {1, len(CONTEXT_TYPES)}
    assert 60 < counts[1] < 140


@pytest.mark.parametrize(
    ("field", "numbers"),
    [("records", (2, 3, 5, 2)), ("tenants", (9, 0, 5, 2)), ("fan_out", (9, 1, 0, 2)), ("depth", (9, 1, 5, 0))],
)
def test_a_forest_that_cannot_be_made_is_refused_by_name(field: str, numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigError) as error:
        Forest(*numbers)
    assert error.value.field == field
