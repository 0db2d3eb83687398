"""What the chain tells of its stages in ``thinking_trace``, and what it must not (C5, C13)."""

from typing import Any

import pytest

from stages.chain import ChainConfig
from tests.support.chain import RECORDS, search, uris
from tests.support.fake_index import FakeIndex


async def test_thinking_comes_only_with_debug_and_a_detailed_trace() -> None:
    """C5, section 10 integration 5."""
    assert (await search(include_debug=True)).thinking_trace is None
    assert (await search(trace_level="detailed")).thinking_trace is None
    response = await search(include_debug=True, trace_level="detailed")
    assert response.thinking_trace is not None
    events = [(event.stage, event.event) for event in response.thinking_trace.events]
    assert events == [
        *[("planner", "planned")] * 3,
        ("embedder", "embedded"),
        *[("seed_search", "recalled")] * 3,
        ("expander", "expanded"),
        ("reranker", "reranked"),
        ("assembler", "assembled"),
    ]
    assert len(events) == response.trace.event_count
    assert not response.thinking_trace.truncated


async def test_a_thinking_trace_is_bounded_in_number_and_size_and_says_what_it_lacks() -> None:
    for config in (ChainConfig(max_events=2), ChainConfig(max_event_bytes=300)):
        response = await search(include_debug=True, trace_level="detailed", config=config)
        assert response.thinking_trace is not None
        *kept, last = response.thinking_trace.events
        assert [event.event for event in kept] == ["planned", "planned"]
        assert (last.event, last.detail) == ("cut", {"missing": response.trace.event_count - 2})
        assert response.thinking_trace.truncated


async def test_a_thinking_trace_holds_neither_the_query_nor_what_was_found() -> None:
    response = await search("rollback zyzzyva", include_debug=True, trace_level="detailed")
    assert "strata://shared/guide/rollback" in uris(response)
    text = str(response.thinking_trace)
    assert "zyzzyva" not in text
    assert not any(str(r["abstract"]) in text for r in RECORDS)


async def test_dropped_candidates_show_their_exclude_reason_in_the_thinking_trace() -> None:
    """C13."""
    response = await search(
        planner_hints={"exclude_terms": ["rollback"]}, include_debug=True, trace_level="detailed", top_k=1
    )
    assert response.thinking_trace is not None
    drops = [event.detail for event in response.thinking_trace.events if event.event == "dropped"]
    assert drops == [{"uri": "strata://shared/guide/rollback", "exclude_reason": "exclude_terms"}]


@pytest.mark.parametrize(
    "change", [{"owner_space": "user:bob"}, {"status": "deleted"}, {"account_id": "rival"}, {"expires_at": 1}]
)
async def test_what_became_hidden_after_the_recall_shows_nowhere(change: dict[str, Any]) -> None:
    """C20, C22: neither as a seed nor in the thinking trace, whatever hid it."""
    index = FakeIndex(RECORDS)
    before = await index.meta("acme", list(index.records))

    async def meta(account_id: str, wanted: Any) -> Any:
        index.records["strata://shared/guide/rollback"] |= change
        return await FakeIndex.meta(index, account_id, wanted)

    assert "strata://shared/guide/rollback" in before
    index.meta = meta  # type: ignore[method-assign]
    response = await search(index=index, include_debug=True, trace_level="detailed", top_k=3)
    assert "strata://shared/guide" in uris(response)
    assert "rollback" not in str(response)
    assert response.thinking_trace is not None
    drops = [event.detail for event in response.thinking_trace.events if event.event == "dropped"]
    assert drops[0] == {"exclude_reason": "unavailable"}
