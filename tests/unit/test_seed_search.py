"""Seed search: level 0 only, both recalls, fused on absolute scales (C11, design decision 7)."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.filters import Eq, Filter, all_of
from contracts.ports import Recalled, RecallQuery
from contracts.query import TypedQuery
from contracts.records import ModelRef
from contracts.stages import QueryVectors, SeedRequest, SeedResult
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig
from tests.support.fake_index import FAKE_MODEL, FakeIndex, record

CTX = RequestContext("acme", "user", "user:ann")
VECTOR = QueryVectors.pack(FAKE_MODEL, np.array([[1.0, 0.0]], dtype=np.float32))


async def search(
    index: FakeIndex,
    query: TypedQuery,
    vectors: QueryVectors | None = VECTOR,
    caller: Filter | None = None,
    seeds: int = 100,
) -> SeedResult:
    stage = SeedSearch(index, SeedSearchConfig(seeds=seeds), ScoringConfig())
    return await stage(CTX, Deadline.after(1), SeedRequest((query,), vectors, caller, 10))


def query(text: str = "timeout", **fields: object) -> TypedQuery:
    return TypedQuery(text, "resource", **fields)  # type: ignore[arg-type]


async def test_only_level_0_records_are_searched() -> None:
    """C11, section 10 unit 3."""
    index = FakeIndex([record("strata://shared/a", "timeout"), record("strata://shared/b", "timeout", level=1)])
    result = await search(index, query())
    assert [hit.uri for hit in result.hits[0]] == ["strata://shared/a"]
    assert index.reads == []


async def test_relevance_is_coverage_and_cosine_on_absolute_scales() -> None:
    index = FakeIndex([record("strata://shared/a", "timeout", vector=(0.6, 0.8))])
    (hit,) = (await search(index, query("timeout budget"))).hits[0]
    assert hit.scores.keyword == 0.5
    assert hit.scores.vector == pytest.approx(0.6)
    assert hit.scores.relevance == pytest.approx((0.5 + 0.7 * 0.6) / 1.7)
    assert hit.score == pytest.approx(0.65 * hit.scores.relevance)


async def test_category_and_target_raise_the_score_by_their_weights() -> None:
    """C15."""
    index = FakeIndex([record("strata://shared/a/b", "timeout", category="guide")])
    (plain,) = (await search(index, query())).hits[0]
    (lifted,) = (await search(index, query(categories=("guide",), target_uri="strata://shared/a"))).hits[0]
    assert lifted.score - plain.score == pytest.approx(0.10 + 0.05)


async def test_without_vectors_keyword_recall_answers_alone_on_its_own_scale() -> None:
    index = FakeIndex([record("strata://shared/a", "timeout"), record("strata://shared/b", "other")])
    result = await search(index, query(), vectors=None)
    assert [hit.uri for hit in result.hits[0]] == ["strata://shared/a"]
    assert result.hits[0][0].scores.relevance == 1.0
    assert result.keyword_only


async def test_vectors_of_another_model_are_refused_and_keywords_answer() -> None:
    """Design decision 9."""
    index = FakeIndex([record("strata://shared/a", "timeout")])
    other = QueryVectors.pack(ModelRef("other", "1", 2), np.array([[1.0, 0.0]], dtype=np.float32))
    result = await search(index, query(), other)
    assert len(result.hits[0]) == 1
    assert result.hits[0][0].scores.vector == 0
    assert result.keyword_only
    assert "another model" in result.degraded[0].reason


async def test_a_failed_recall_is_reported_and_the_other_scores_alone() -> None:
    index = FakeIndex([record("strata://shared/a", "timeout", vector=(0.6, 0.8))])
    index.failing = {"dense": "TimeoutError"}
    result = await search(index, query())
    assert result.hits[0][0].scores.relevance == result.hits[0][0].scores.keyword == 1.0
    assert result.degraded[0].reason.startswith("RET-5001: dense")


async def test_a_recall_that_saw_a_part_of_the_index_is_reported_and_its_hits_count() -> None:
    index = FakeIndex([record("strata://shared/a", "timeout")])
    index.partial = {"keyword": "1 of 3 shards failed"}
    result = await search(index, query())
    assert len(result.hits[0]) == 1
    assert [each.reason for each in result.degraded] == ["RET-5001: keyword recall is incomplete: 1 of 3 shards failed"]


async def test_a_target_that_holds_nothing_and_does_not_exist_is_ignored_and_reported() -> None:
    """RET-4041, C21."""
    index = FakeIndex([record("strata://shared/a", "timeout")])
    result = await search(index, query(target_uri="strata://shared/none"))
    assert [hit.uri for hit in result.hits[0]] == ["strata://shared/a"]
    assert result.absent_targets == ("strata://shared/none",)


GONE = {"uri": "strata://shared/c", "status": "archived"}


async def test_a_target_that_may_not_be_seen_reads_like_one_that_does_not_exist() -> None:
    """C21: archived, expired and absent are one, in the answer and in the work done."""
    answers = []
    for hidden in ({"status": "archived"}, {"expires_at": 1}, {"account_id": "other"}, GONE):
        index = FakeIndex([record("strata://shared/a", "timeout"), record("strata://shared/b", "x") | hidden])
        result = await search(index, query(target_uri="strata://shared/b"))
        answers.append((result.hits, result.absent_targets, index.metas, len(index.recalls)))
    assert answers.count(answers[0]) == len(answers)
    assert answers[0][1] == ("strata://shared/b",)


async def test_a_space_without_a_match_stays_a_restriction() -> None:
    """A space is no node of its own, yet it is never absent for those who may see it."""
    index = FakeIndex([record("strata://shared/a", "timeout")])
    result = await search(index, query(target_uri="strata://user:ann"))
    assert (result.hits, result.absent_targets, index.metas) == ([[]], (), [])


async def test_a_target_that_exists_but_matches_nothing_stays_a_restriction() -> None:
    index = FakeIndex([record("strata://shared/a", "timeout"), record("strata://shared/b", "x", context_type="memory")])
    result = await search(index, query(target_uri="strata://shared/b"))
    assert result.hits == [[]]
    assert result.absent_targets == ()


async def test_nothing_of_another_account_or_space_is_found_and_a_caller_filter_only_narrows() -> None:
    """C20."""
    index = FakeIndex(
        [
            record("strata://shared/a", "timeout", tags=("x",)),
            record("strata://user:ann/b", "timeout"),
            record("strata://user:bob/c", "timeout"),
            record("strata://shared/d", "timeout", account_id="other"),
            record("strata://shared/e", "timeout", status="archived"),
            record("strata://shared/f", "timeout", expires_at=5),
        ]
    )
    everything = await search(index, query())
    assert {hit.uri for hit in everything.hits[0]} == {"strata://shared/a", "strata://user:ann/b"}
    narrowed = await search(index, query(), caller=Eq("tags", "x"))
    assert {hit.uri for hit in narrowed.hits[0]} == {"strata://shared/a"}
    widened = await search(index, query(), caller=Eq("owner_space", "user:bob"))
    assert widened.hits == [[]]


@pytest.mark.parametrize(("seeds", "kept"), [(1, 10), (12, 12), (100, 20)])
async def test_seeds_are_kept_as_configured_but_never_fewer_than_were_asked_for(seeds: int, kept: int) -> None:
    """Design decision 6: a deeper recall keeps what it went for."""

    class FakeTwoRecalls(FakeIndex):
        """Each recall finds ten others."""

        async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
            (query,) = queries
            halves = [msgspec.structs.replace(query, condition=all_of(query.condition, Eq("kind", k))) for k in "ab"]
            first, second = await super().recall(halves)
            return [msgspec.structs.replace(first, hits=first.hits + second.hits)]

    records = [record(f"strata://shared/{n}", "timeout", kind="ab"[n % 2]) for n in range(40)]
    result = await search(FakeTwoRecalls(records), query(), seeds=seeds)
    assert len(result.hits[0]) == kept


async def test_all_typed_queries_travel_in_one_index_call() -> None:
    """Design decision 2."""
    index = FakeIndex([record("strata://shared/a", "timeout")])
    queries = tuple(TypedQuery("timeout", kind) for kind in ("memory", "skill", "resource"))
    vectors = QueryVectors.pack(FAKE_MODEL, np.array([[1.0, 0.0]] * 3, dtype=np.float32))
    stage = SeedSearch(index, SeedSearchConfig(), ScoringConfig())
    result = await stage(CTX, Deadline.after(1), SeedRequest(queries, vectors, None, 10))
    assert len(index.recalls) == 1
    assert [len(hits) for hits in result.hits] == [0, 0, 1]
