"""POST /memories/search over the graph and over an upstream service, on SQLite and PostgreSQL: seed 2's acceptance."""

import json
from typing import Any

import pytest

from gateway.store import Override, Resource, Tombstone
from tests.support.gateway import (
    World,
    base,
    graph,
    kind,
    stub,
    world,
)

__all__ = ["base", "graph", "kind", "stub", "world"]


async def test_1_without_new_fields_the_upstream_gets_the_defaults(world: World) -> None:
    """Acceptance 1."""
    await world.found()
    assert world.upstream.sent == [
        {
            "user_id": "alice",
            "query": "green tea",
            "method": "hybrid",
            "top_k": 8,
            "include_profile": True,
            "enable_llm_rerank": True,
            "app_id": "default",
            "project_id": "default",
        }
    ]


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid", "agentic"])
async def test_2_every_option_reaches_the_upstream_as_it_was_sent(world: World, method: str) -> None:
    """Acceptance 2."""
    options = {
        "method": method,
        "top_k": 3,
        "radius": 0.25,
        "include_profile": False,
        "enable_llm_rerank": False,
        "app_id": "shop",
        "project_id": "p1",
        "filters": {"OR": [{"timestamp": {"gte": 0}}, {"sender_id": "alice"}]},
    }
    await world.found(**options)
    assert world.upstream.sent == [{"user_id": "alice", "query": "green tea", **options}]


async def test_3_top_k_of_minus_one_is_taken_and_0_and_the_rest_are_not(world: World) -> None:
    """Acceptance 3."""
    assert "e-chat" in await world.ids(top_k=-1)
    for top_k in (0, -2, 101):
        response = await world.post(top_k=top_k)
        assert (response.status_code, response.json()["field"]) == (422, "top_k")
    for field, value in (("method", "magic"), ("radius", 2), ("query", "")):
        response = await world.post(**{field: value})
        assert (response.status_code, response.json()["field"]) == (422, field)
    assert len(world.upstream.sent) == 1


async def test_4_custom_filters_leave_the_isolation_of_scopes_alone(world: World) -> None:
    """Acceptance 4."""
    await world.store.put(Resource("r-2", "book:2", "files://alice/2.pdf"), "alice")
    custom = {"OR": [{"session_id": "chat:2"}, {"timestamp": {"gte": 0}}]}
    fields: dict[str, Any] = {"include_profile": False, "filters": custom, "conversation_id": "1"}
    assert await world.ids(scope=["current_chat"], **fields) == {"e-chat", "m-1"}
    assert await world.ids(scope=["resources"], **fields) == {"e-book"}
    assert [sent["filters"] for sent in world.upstream.sent] == [
        {"AND": [custom, {"session_id": "chat:1"}]},
        {"AND": [custom, {"session_id": {"in": ["book:1", "book:2"]}}]},
    ]


async def test_4_one_condition_alone_is_sent_as_it_is(world: World) -> None:
    """G4."""
    await world.found(scope=["current_chat", "all_user_memory"], conversation_id="1")
    assert sorted(map(str, (sent.get("filters") for sent in world.upstream.sent))) == [
        "None",
        "{'session_id': 'chat:1'}",
    ]
    assert not any("filters" in sent and sent["filters"] is None for sent in world.upstream.sent)


async def test_4_a_scope_without_its_condition_is_skipped(world: World) -> None:
    """G4: no conversation, no resources."""
    assert await world.found("alice", scope=["current_chat"]) == []
    assert await world.found("bob", scope=["current_chat", "resources"], query="x", include_profile=False) == []
    assert [sent["filters"] for sent in world.upstream.sent] == [{"session_id": {"in": ["book:bob"]}}]


async def test_4_resources_are_searched_in_batches(world: World) -> None:
    """G4."""
    for number in range(2, 252):
        await world.store.put(Resource(f"x-{number}", f"x:{number}", "files://x"), "alice")
    assert "e-book" in await world.ids(scope="resources")
    batches = [sent["filters"]["session_id"]["in"] for sent in world.upstream.sent]
    assert sorted(map(len, batches)) == [51, 100, 100]
    assert len({session for batch in batches for session in batch}) == 251


async def test_5_an_agent_is_the_only_owner_sent_and_the_user_still_authenticates(world: World) -> None:
    """Acceptance 5; G2."""
    assert await world.ids(agent_id="chef") == {"c-1", "s-1"}
    (sent,) = world.upstream.sent
    assert sent["agent_id"] == "chef"
    assert "user_id" not in sent
    assert "key of alice" not in json.dumps(sent)
    for user, key in (("alice", "wrong"), ("chef", "key of alice"), ("nobody", "x")):
        assert (await world.post(user, key, agent_id="chef")).status_code == 401
    assert len(world.upstream.sent) == 1


async def test_6_each_result_says_what_it_is(world: World) -> None:
    """Acceptance 6; G5."""
    found = [*await world.found(), *await world.found(agent_id="chef")]
    assert {result["id"][0]: result["memory_type"] for result in found} == {
        "e": "episode",
        "p": "profile",
        "m": "unprocessed_message",
        "c": "agent_case",
        "s": "agent_skill",
    }
    by_id = {result["id"]: result for result in found}
    assert by_id["e-chat"]["text"] == "Alice ordered green tea in the chat"
    assert by_id["p-1"]["text"] == '{"likes":"green tea"}'
    assert by_id["m-1"]["text"] == "one green tea please"
    assert by_id["c-1"]["text"] == "make green tea\nboil water"
    assert "boil, pour, wait" in by_id["s-1"]["text"]
    assert (by_id["p-1"]["session_id"], by_id["s-1"]["session_id"]) == (None, None)
    assert by_id["c-1"]["session_id"] == "chat:1"


async def test_7_tombstones_come_before_overrides_and_only_active_ones_hold(world: World) -> None:
    """Acceptance 7; G6."""
    for memory_id, text, active in (("e-chat", "Iced tea.", True), ("e-book", "No.", False), ("e-none", "X", True)):
        await world.store.put(Override(memory_id, text, active), "alice")
    await world.store.put(Tombstone("e-none"), "alice")
    await world.store.put(Tombstone("e-secret"), "alice")
    texts = {result["id"]: result["text"] for result in await world.found()}
    assert texts["e-chat"] == "Iced tea."
    assert texts["e-book"] == "The tea book says green tea is old"
    assert "e-none" not in texts
    assert "e-secret" in await world.ids("bob")
    await world.store.remove(Tombstone, "alice", "e-none")
    assert {result["id"]: result["text"] for result in await world.found()}["e-none"] == "X"


async def test_7_resource_uris_are_shown_for_own_sessions_alone(world: World) -> None:
    """Acceptance 7; G7: Bob's URI never shows to Alice, though a memory of hers names his session."""
    response = await world.post()
    found = {result["id"]: result for result in response.json()["results"]}
    assert (found["e-book"]["resource_id"], found["e-book"]["resource_uri"]) == ("r-1", "files://alice/tea.pdf")
    assert (found["e-bobs"]["resource_id"], found["e-bobs"]["resource_uri"]) == (None, None)
    assert (found["p-1"]["resource_id"], found["p-1"]["resource_uri"]) == (None, None)
    assert "private.pdf" not in response.text
