"""The hierarchical expander (C12)."""

import numpy as np
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.hits import NodeHit
from contracts.query import TypedQuery
from contracts.stages import ExpandRequest, ExpandResult, QueryVectors, SeedRequest
from stages.expander import Expander, ExpanderConfig
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig
from tests.support.fake_index import FAKE_MODEL, FakeIndex, record
from tests.support.hits import node_hit

CTX = RequestContext("acme", "user", "user:ann")
VECTOR = QueryVectors.pack(FAKE_MODEL, np.array([[1.0, 0.0]], dtype=np.float32))
QUERY = TypedQuery("deploy service", "resource")
ROOT = "strata://shared/guide"

TREE = [
    record(ROOT, "deploy service", has_children=True),
    record(f"{ROOT}/ops", "deploy service", has_children=True, vector=(0.0, 1.0)),
    record(f"{ROOT}/ops/rollback", "undo", vector=(0.0, 1.0)),
    record(f"{ROOT}/ops/deep", "x", has_children=True, vector=(0.0, 1.0)),
    record(f"{ROOT}/ops/deep/er", "y", has_children=True, vector=(0.0, 1.0)),
    record(f"{ROOT}/ops/deep/er/est", "z", vector=(0.0, 1.0)),
    record(f"{ROOT}/misc", "other", vector=(0.0, 1.0)),
    record("strata://user:bob/secret", "deploy service"),
]


async def seeds(index: FakeIndex, limit: int) -> list[list[NodeHit]]:
    stage = SeedSearch(index, SeedSearchConfig(), ScoringConfig())
    result = await stage(CTX, Deadline.after(1), SeedRequest((QUERY,), None, None, limit))
    index.recalls.clear()
    return result.hits


async def expand(index: FakeIndex, hits: list[list[NodeHit]], **config: int) -> ExpandResult:
    stage = Expander(index, ExpanderConfig(**config), ScoringConfig())
    return await stage(CTX, Deadline.after(1), ExpandRequest((QUERY,), VECTOR, None, hits))


async def test_children_of_seeds_and_of_roots_are_reached_in_two_levels_with_one_call_each() -> None:
    index = FakeIndex(TREE)
    result = await expand(index, await seeds(index, 2))
    reached = {hit.uri for hit in result.hits[0]}
    assert f"{ROOT}/ops/rollback" in reached
    assert f"{ROOT}/ops/deep/er" in reached
    assert f"{ROOT}/ops/deep/er/est" not in reached
    assert result.depth == len(index.recalls) == 2
    assert index.reads == []


async def test_children_of_roots_are_reached_though_neither_is_a_seed() -> None:
    index = FakeIndex(TREE)
    leaf = node_hit(f"{ROOT}/ops/rollback", depth=3)
    reached = {hit.uri for hit in (await expand(index, [[leaf]], max_depth=1)).hits[0]}
    assert {ROOT, f"{ROOT}/misc", f"{ROOT}/ops"} <= reached


async def test_a_flat_collection_is_not_searched_a_second_time() -> None:
    index = FakeIndex([record(f"{ROOT}/{n}", "deploy service") for n in range(3)])
    await expand(index, await seeds(index, 10))
    assert "field='depth'" not in str(index.recalls)


async def test_the_depth_is_configurable_down_to_none() -> None:
    index = FakeIndex(TREE)
    found = await seeds(index, 2)
    assert {hit.uri for hit in (await expand(index, found, max_depth=0)).hits[0]} == {hit.uri for hit in found[0]}
    deep = await expand(index, found, max_depth=4)
    assert f"{ROOT}/ops/deep/er/est" in {hit.uri for hit in deep.hits[0]}


async def test_the_parents_relevance_lifts_a_child_by_its_weight_and_never_cuts() -> None:
    index = FakeIndex(TREE)
    hits = {hit.uri: hit for hit in (await expand(index, await seeds(index, 2))).hits[0]}
    lifted, plain = hits[f"{ROOT}/ops/rollback"], hits[f"{ROOT}/ops/deep/er"]
    assert lifted.scores.hierarchy == 1.0
    assert lifted.score == pytest.approx(0.65 * lifted.scores.relevance + 0.20)
    assert plain.scores.hierarchy == pytest.approx(0.5)


async def test_a_root_is_its_own_path_so_that_its_children_have_no_start_of_it() -> None:
    index = FakeIndex(TREE)
    hits = {hit.uri: hit for hit in (await expand(index, await seeds(index, 2))).hits[0]}
    assert hits[ROOT].scores.hierarchy == hits[ROOT].scores.relevance == 1.0


async def test_a_seed_gets_its_parents_relevance_though_the_parent_is_no_seed() -> None:
    index = FakeIndex(TREE)
    found = await seeds(index, 10)
    only_child = [[hit for hit in found[0] if hit.uri == f"{ROOT}/ops"]]
    result = await expand(index, only_child)
    assert next(hit for hit in result.hits[0] if hit.uri == f"{ROOT}/ops").scores.hierarchy == 1.0


async def test_no_node_outside_the_callers_spaces_is_reached() -> None:
    index = FakeIndex(TREE)
    result = await expand(index, await seeds(index, 2), max_depth=8)
    assert all(hit.owner_space == "shared" for hit in result.hits[0])


async def test_the_cap_on_nodes_keeps_the_best_and_says_so() -> None:
    index = FakeIndex(TREE)
    result = await expand(index, await seeds(index, 2), max_nodes=2)
    assert [hit.uri for hit in result.hits[0]] == [ROOT, f"{ROOT}/ops"]
    assert result.capped


async def test_it_stops_going_deeper_when_time_is_short() -> None:
    index = FakeIndex(TREE)
    stage = Expander(index, ExpanderConfig(reserve_ms=60_000), ScoringConfig())
    result = await stage(CTX, Deadline.after(1), ExpandRequest((QUERY,), VECTOR, None, await seeds(index, 2)))
    assert result.depth == 1


async def test_a_query_without_seeds_costs_no_index_call() -> None:
    index = FakeIndex(TREE)
    result = await expand(index, [[]])
    assert result.hits == [[]]
    assert index.recalls == []
