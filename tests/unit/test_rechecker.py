"""The rechecker only drops, each with a reason, by what the source of truth says now (C13, C20)."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecheckFailed
from contracts.filters import Contains, Eq, Filter, Not
from contracts.hits import NodeHit
from contracts.ports import NodeMeta
from contracts.query import QueryFilters, QueryHints, TimeRange, TypedQuery
from contracts.stages import RecheckRequest, RecheckResult
from stages.rechecker import Rechecker, RecheckerConfig
from tests.support.fake_index import FakeIndex, record
from tests.support.hits import node_hit

CTX = RequestContext("acme", "user", "user:ann")
A = "strata://shared/a"


async def recheck(
    index: FakeIndex, hits: list[NodeHit], *, caller: Filter | None = None, candidates: int = 100, **query: object
) -> RecheckResult:
    typed = TypedQuery("q", "resource", **query)  # type: ignore[arg-type]
    stage = Rechecker(index, RecheckerConfig(candidates=candidates))
    return await stage(CTX, Deadline.after(10), RecheckRequest.of((typed,), caller, [hits]))


@pytest.mark.parametrize(
    ("live", "query", "reason"),
    [
        ({}, {}, ""),
        ({"owner_space": "user:bob"}, {}, "forbidden"),
        ({"status": "archived"}, {}, "inactive"),
        ({"expires_at": 1}, {}, "expired"),
        ({"level": 1}, {}, "level"),
        ({"context_type": "memory"}, {}, "context_type"),
        ({"updated_at": 5}, {"filters": QueryFilters(time_range=TimeRange(start=6))}, "time_range"),
        ({"updated_at": 6}, {"filters": QueryFilters(time_range=TimeRange(start=6))}, ""),
        ({"tags": ("a",)}, {"caller": Contains("tags", ("a", "b"))}, "filter"),
        ({"tags": ("a", "b")}, {"caller": Contains("tags", ("a", "b"))}, ""),
        ({"attrs": {"language": ("zh",)}}, {"caller": Eq("attrs.language", "en")}, "filter"),
        ({"attrs": {"language": ("zh",)}}, {"caller": Not(Eq("attrs.language", "en"))}, ""),
        ({"kind": "turn", "source_id": "s", "parent_uri": ""}, {"caller": Eq("kind", "section")}, "filter"),
        ({}, {"filters": QueryFilters(owner_space="user:ann")}, "owner_space"),
        ({}, {"target_uri": "strata://shared/b"}, "target_uri"),
        ({}, {"hints": QueryHints(must_have_terms=("超时",))}, "must_have_terms"),
        ({"abstract": "带 TIMEOUT 超时"}, {"hints": QueryHints(must_have_terms=("超时", "timeout"))}, ""),
        ({"abstract": "old"}, {"hints": QueryHints(exclude_terms=("OLD",))}, "exclude_terms"),
    ],
)
async def test_each_broken_condition_drops_with_its_reason(
    live: dict[str, object], query: dict[str, object], reason: str
) -> None:
    result = await recheck(FakeIndex([record(A, **live)]), [node_hit(A)], **query)
    assert [drop.exclude_reason for drop in result.drops] == ([reason] if reason else [])
    assert result.kept == ([[]] if reason else [[0]])


async def test_a_record_gone_from_the_source_of_truth_is_dropped() -> None:
    result = await recheck(FakeIndex([]), [node_hit(A)])
    assert [drop.exclude_reason for drop in result.drops] == ["gone"]


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1), st.booleans()), unique_by=lambda t: t[0]))
async def test_it_never_changes_a_score_nor_the_order_nor_adds_a_hit(rows: list[tuple[int, float, bool]]) -> None:
    """C13, section 10 unit 5."""
    hits = [node_hit(f"strata://shared/{n}", score) for n, score, _ in rows]
    index = FakeIndex([record(f"strata://shared/{n}", status="active" if keep else "archived") for n, _, keep in rows])
    before = [msgspec.structs.replace(hit) for hit in hits]
    result = await recheck(index, hits)
    assert result.of([hits]) == [[hit for hit, (_, _, keep) in zip(before, rows, strict=True) if keep]]
    assert len(result.drops) + len(result.kept[0]) == len(hits)


async def test_a_record_that_a_failing_index_gives_out_of_another_account_is_dropped() -> None:
    """C20: the account as stored decides, whatever the look-up was asked."""
    index = FakeIndex([record(A, account_id="other")])

    async def leaks(account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        return await FakeIndex.meta(index, "other", uris)

    index.meta = leaks  # type: ignore[method-assign]
    result = await recheck(index, [node_hit(A)])
    assert (result.kept, [drop.exclude_reason for drop in result.drops]) == ([[]], ["forbidden"])


async def test_it_goes_on_down_the_candidates_until_as_many_as_asked_for_pass() -> None:
    """Design decision 6: drops are made up for."""
    uris = [f"strata://shared/{n:02}" for n in range(40)]
    index = FakeIndex([record(uri, status="active" if n >= 25 else "archived") for n, uri in enumerate(uris)])
    result = await recheck(index, list(map(node_hit, uris)), candidates=10, top_k=8)
    assert result.kept == [[*range(25, 40)]]
    assert [len(asked) for asked in index.metas] == [10, 10, 10, 10]
    assert len(result.drops) == 25


async def test_it_looks_no_further_than_it_must() -> None:
    uris = [f"strata://shared/{n:02}" for n in range(40)]
    index = FakeIndex([record(uri) for uri in uris])
    result = await recheck(index, list(map(node_hit, uris)), candidates=10, top_k=8)
    assert result.kept == [[*range(10)]]
    assert len(index.metas) == 1


async def test_a_query_that_has_enough_is_not_checked_again_for_the_sake_of_another() -> None:
    uris = [f"strata://shared/{n:02}" for n in range(20)]
    index = FakeIndex([record(uri, context_type="memory") for uri in uris])
    queries = (TypedQuery("q", "memory", top_k=5), TypedQuery("q", "skill", top_k=5))
    hits = [list(map(node_hit, uris)), list(map(node_hit, uris))]
    stage = Rechecker(index, RecheckerConfig(candidates=10))
    result = await stage(CTX, Deadline.after(10), RecheckRequest.of(queries, None, hits))
    assert result.kept == [[*range(10)], []]
    assert [drop.query for drop in result.drops] == [1] * 20


async def test_when_time_runs_out_what_is_checked_is_answered_and_the_rest_dropped() -> None:
    uris = [f"strata://shared/{n:02}" for n in range(20)]
    index = FakeIndex([record(uri, status="active" if n == 9 else "archived") for n, uri in enumerate(uris)])
    stage = Rechecker(index, RecheckerConfig(candidates=10))
    request = RecheckRequest.of((TypedQuery("q", "resource"),), None, [list(map(node_hit, uris))])
    result = await stage(CTX, Deadline(at=0), request)
    assert result.kept == [[9]]
    assert len(index.metas) == 1


async def test_a_source_of_truth_that_fails_is_ret_5002() -> None:
    index = FakeIndex([])

    async def broken(account_id: str, uris: object) -> dict[str, object]:
        raise OSError

    index.meta = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(RecheckFailed) as caught:
        await recheck(index, [node_hit(A)])
    assert caught.value.code == "RET-5002"
