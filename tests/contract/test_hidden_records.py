"""What is forbidden, absent, revoked or hidden a moment ago can't be told apart, and never shows (C13, C20 to C22)."""

import msgspec
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import TargetForbidden
from contracts.requests import SearchMemoryRequest
from contracts.stages import ReadRequest
from contracts.uri import is_under
from tests.contract.conftest import Index
from tests.contract.tenants import ANN, PAST, CountingIndex, chain, made, names, reader, search, shown, store

TREE = ["strata://shared/a", "strata://user:ann/a", "strata://user:ann/a/b", "strata://team:x/a", "strata://user:bob/a"]
OWN = set(TREE[:-1])


@pytest.fixture
async def tenant(shared_index: Index) -> RequestContext:
    """Ann, with records of hers, of her team, of all, and of Bob."""
    ctx = msgspec.structs.replace(ANN, account_id=next(names))
    await store(shared_index, ctx.account_id, [made(uri) for uri in TREE])
    return ctx


@pytest.mark.parametrize("space", ["user:bob", "nobody"])
async def test_a_space_out_of_scope_narrows_to_nothing_whether_it_exists_or_not(
    shared_index: Index, tenant: RequestContext, space: str
) -> None:
    """C20: owner_space is one more condition, so the answer is empty, as it is for an empty space."""
    answer = await search(shared_index, tenant, owner_space=space)
    assert (answer.hits, answer.seed_hits, answer.trace.warnings) == (
        (),
        (),
        (await search(shared_index, tenant, owner_space="agent:none")).trace.warnings,
    )


@pytest.mark.parametrize(
    "uri", ["strata://user:bob/a", "strata://user:bob/none", "strata://nobody/a", "strata://nobody"]
)
async def test_a_forbidden_uri_costs_no_look_up_and_reads_the_same_whether_it_exists_or_not(
    shared_index: Index, tenant: RequestContext, uri: str
) -> None:
    """C21, C22."""
    index = CountingIndex(shared_index)
    with pytest.raises(TargetForbidden) as refusal:
        await search(index, tenant, target_uri=uri)
    assert (refusal.value.code, refusal.value.message) == ("RET-4031", "You may not search there.")
    for level in ("L1", "L2"):
        result = await reader(index)(tenant, Deadline.after(60), ReadRequest((uri,), level))
        assert (result.blocks, result.forbidden) == ((), (uri,))
    assert index.asked == []


HIDDEN = {"archived": {"status": "archived"}, "expired": {"expires_at": PAST}, "gone": None}


@pytest.mark.parametrize("uri", ["strata://user:ann/a", "strata://shared/a"])
async def test_within_the_scope_absent_archived_and_expired_are_one(
    shared_index: Index, tenant: RequestContext, uri: str
) -> None:
    """C21, C22: by the answer and by the look-ups."""
    answers = []
    for changes in HIDDEN.values():
        nodes = [made(other) for other in TREE if not is_under(other, uri)]
        hidden = [made(uri, **changes)] if changes else []
        await store(shared_index, tenant.account_id, [*nodes, *hidden])
        index = CountingIndex(shared_index)
        found = await search(index, tenant, target_uri=uri)
        result = await reader(index)(tenant, Deadline.after(60), ReadRequest((uri,), "L2"))
        answers.append((shown(found), found.trace.warnings, result.blocks, result.forbidden, len(index.asked)))
    assert answers[0] == answers[1] == answers[2]
    assert any(warning.startswith("RET-4041") for warning in answers[0][1])


async def test_a_grant_that_was_revoked_hides_its_records_from_the_next_request_on(
    shared_index: Index, tenant: RequestContext
) -> None:
    """A key's spaces are read with each request: nothing of them is kept."""
    assert shown(await search(shared_index, tenant)) == OWN
    revoked = msgspec.structs.replace(tenant, spaces=())
    assert shown(await search(shared_index, revoked)) == OWN - {"strata://team:x/a"}
    with pytest.raises(TargetForbidden):
        await search(shared_index, revoked, target_uri="strata://team:x/a")
    result = await reader(shared_index)(revoked, Deadline.after(60), ReadRequest(("strata://team:x/a",)))
    assert result.blocks == ()


@pytest.mark.parametrize("reason", HIDDEN)
async def test_a_record_hidden_a_moment_ago_does_not_show_though_the_index_still_has_it(
    shared_index: Index, tenant: RequestContext, reason: str
) -> None:
    """Design decision 5: neither as a hit, nor as a seed, nor in what is told about dropped candidates."""
    index, uri = CountingIndex(shared_index), "strata://user:ann/a/b"
    ask = {"include_debug": True, "trace_level": "detailed"}
    await index.lag(lambda: search(index, tenant, **ask))
    changes = HIDDEN[reason]
    hidden = [made(uri, **changes)] if changes else []
    await store(shared_index, tenant.account_id, [*(made(other) for other in TREE if other != uri), *hidden])
    answer = await search(index, tenant, **ask)
    assert shown(answer) == OWN - {uri}
    assert uri not in str(answer)
    assert answer.thinking_trace is not None
    assert any(event.event == "dropped" for event in answer.thinking_trace.events)


async def test_a_record_that_no_longer_matches_the_callers_own_filter_does_not_show_either(
    shared_index: Index, tenant: RequestContext
) -> None:
    index, uri = CountingIndex(shared_index), "strata://user:ann/a/b"
    ask = {"filter": {"not": {"eq": {"tags": "private"}}}, "time_range": {"end": 5}}
    await index.lag(lambda: search(index, tenant, **ask))
    changed = {uri: {"tags": ("private",)}, "strata://shared/a": {"updated_at": 6}}
    await store(shared_index, tenant.account_id, [made(other, **changed.get(other, {})) for other in TREE])
    answer = await search(index, tenant, **ask)
    assert {hit.uri for hit in answer.hits} == OWN - changed.keys()


async def test_the_answer_is_full_though_the_rechecker_drops_most_candidates(shared_index: Index) -> None:
    """Design decision 6: ``limit`` is filled after drops."""
    ctx = RequestContext(next(names), "admin")
    nodes = [made(f"strata://shared/{n:03}", abstract="common common old" if n < 80 else "common") for n in range(100)]
    await store(shared_index, ctx.account_id, nodes)
    request = SearchMemoryRequest.model_validate({"query": "common", "planner_hints": {"exclude_terms": ["old"]}})
    answer = await chain(shared_index, limit=25, candidates=10).search(ctx, request)
    assert len(answer.hits) == request.top_k
    assert all(int(hit.uri[-3:]) >= 80 for hit in answer.hits)
