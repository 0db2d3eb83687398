"""The rechecker only drops, each with a reason (C13)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecheckFailed
from contracts.hits import NodeHit
from contracts.query import QueryFilters, QueryHints, TypedQuery
from contracts.stages import RecheckRequest, RecheckResult
from stages.rechecker import Rechecker, RecheckerConfig
from tests.support.fake_index import FakeIndex, record
from tests.support.hits import node_hit

CTX = RequestContext("acme", "user", "user:ann")
A = "strata://shared/a"


async def recheck(index: FakeIndex, hits: list[NodeHit], **query: object) -> RecheckResult:
    typed = TypedQuery("q", "resource", **query)  # type: ignore[arg-type]
    return await Rechecker(index, RecheckerConfig())(CTX, Deadline.after(1), RecheckRequest((typed,), None, [hits]))


@pytest.mark.parametrize(
    ("live", "query", "reason"),
    [
        ({}, {}, ""),
        ({"owner_space": "user:bob"}, {}, "forbidden"),
        ({"status": "archived"}, {}, "inactive"),
        ({"expires_at": 1}, {}, "expired"),
        ({"context_type": "memory"}, {}, "context_type"),
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
    assert len(result.hits[0]) == (0 if reason else 1)


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
    assert result.hits[0] == [hit for hit, (_, _, keep) in zip(before, rows, strict=True) if keep]
    assert len(result.drops) + len(result.hits[0]) == len(hits)


async def test_a_source_of_truth_that_fails_is_ret_5002() -> None:
    index = FakeIndex([])

    async def broken(account_id: str, uris: object) -> dict[str, object]:
        raise OSError

    index.meta = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(RecheckFailed) as caught:
        await recheck(index, [node_hit(A)])
    assert caught.value.code == "RET-5002"
