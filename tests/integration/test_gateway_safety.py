"""POST /memories/search: users apart, logins guarded, and what fails costs its own part and no more."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from database.engine import Database
from deployments.local import LocalService
from gateway.config import GatewayConfig
from gateway.login import Hasher
from gateway.store import Agent, Resource, UserRow
from tests.support.gateway import (
    LOGIN,
    World,
    base,
    graph,
    kind,
    open_world,
    stub,
    world,
)
from tests.support.memory_service import MemoryService
from tests.support.postgres import Postgres
from tests.support.waiting import until

__all__ = ["base", "graph", "kind", "stub", "world"]


async def test_users_see_nothing_of_each_other(world: World) -> None:
    """G1, G2."""
    assert await world.ids("bob") == {"e-secret"}
    assert "e-secret" not in await world.ids("alice", top_k=-1)


async def test_several_scopes_are_answered_once_and_best_first(world: World) -> None:
    """Duplicates are folded; the earlier scope wins among equals."""
    found = await world.found(scope=["current_chat", "resources", "all_user_memory"], conversation_id="1")
    assert len({(r["memory_type"], r["id"]) for r in found}) == len(found)
    scopes = {result["id"]: result["source_scope"] for result in found}
    assert (scopes["e-chat"], scopes["e-book"]) == ("current_chat", "resources")
    assert scopes["e-none"] == "all_user_memory"
    scores = [result["score"] for result in found if result["score"] is not None]
    assert scores == sorted(scores, reverse=True)
    assert len(world.upstream.sent) == 3


async def test_what_was_missing_in_several_scopes_is_named_once(world: World, kind: str) -> None:
    """The graph has no language model here; what an upstream service reranks is its own business."""
    response = await world.post(scope=["current_chat", "resources", "all_user_memory"], conversation_id="1")
    stages = [part["stage"] for part in response.json().get("degraded", [])]
    assert stages == (["llm_rerank"] if kind == "graph" else [])


async def test_a_wrong_key_and_an_unknown_user_are_told_apart_by_nothing(world: World) -> None:
    answers = [(await world.post(user, "wrong")) for user in ("alice", "nobody")]
    assert [answer.status_code for answer in answers] == [401, 401]
    bodies = [{**answer.json(), "request_id": ""} for answer in answers]
    assert bodies[0] == bodies[1]
    assert not world.upstream.sent


async def test_wrong_keys_are_held_back_with_a_time_to_come_again(world: World) -> None:
    answers = [await world.post("alice", f"guess {number}") for number in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_a_removed_user_and_a_changed_key_hold_at_once(world: World) -> None:
    assert (await world.post()).status_code == 200
    await world.store.change_key("alice", Hasher(GatewayConfig.model_validate({"login": LOGIN}).login).hashed("new"))
    assert (await world.post()).status_code == 401
    assert (await world.post(key="new")).status_code == 200
    assert await world.store.remove_user("alice")
    assert (await world.post(key="new")).status_code == 401
    assert await world.store.owned(Resource, "alice") == []


async def test_agents_can_be_held_to_those_of_the_user(
    base: dict[str, Any], kind: str, database: Database, graph: LocalService, stub: MemoryService, world: World
) -> None:
    """Option agent_ownership: check."""
    strict = await open_world(base, kind, database, graph, stub, agent_ownership="check")
    answers = [await strict.post(agent_id=agent) for agent in ("chef", "no such agent")]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert not strict.upstream.sent
    await strict.store.put(Agent("chef"), "alice")
    assert (await strict.post(agent_id="chef")).status_code == 200
    assert (await strict.post("bob", agent_id="chef")).status_code == 403
    await strict.http.aclose()
    await strict.upstream.close()


async def test_a_log_line_has_no_query_no_key_and_no_filter(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        await world.post(query="private words", filters={"sender_id": "hush"}, conversation_id="1")
        await world.post("alice", "hunter2", query="private words")
        await world.post("key of alice", "x", query="")
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "ray.serve"]
    assert [line["outcome"] for line in lines] == [lines[0]["outcome"], "RET-4011", "RET-4220"]
    assert (lines[0]["user_id"], lines[0]["account_id"], lines[0]["filtered"]) == ("alice", "acme", True)
    assert lines[0]["query_hash"]
    assert not {"user_id", "query_hash"} & lines[1].keys()
    for word in ("private", "hush", "hunter2", "key of"):
        assert word not in caplog.text


async def test_graph_a_bad_filter_is_4xx_before_any_search(
    base: dict[str, Any], database: Database, graph: LocalService, stub: MemoryService
) -> None:
    """G8, even where every scope is skipped."""
    world = await open_world(base, "graph", database, graph, stub)
    hasher = Hasher(GatewayConfig.model_validate({"login": LOGIN}).login)
    await world.store.add_user(UserRow("alice", hasher.hashed("key of alice"), "acme", "memory.alice"))
    for filters in ({"owner_id": "bob"}, {"session_id": {"like": "x"}}, {"AND": [{}]}):
        for scope in ("all_user_memory", "current_chat"):
            response = await world.post(filters=filters, scope=scope)
            assert (response.status_code, response.json()["code"]) == (400, "RET-4004")
    assert not world.upstream.sent


class TestUpstreamFailures:
    """G8 and deadlines, over HTTP."""

    @pytest.fixture
    def kind(self) -> str:
        return "http"

    @pytest.fixture(params=["sqlite"])
    async def database_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'strata.db'}"

    async def test_its_refusal_of_a_filter_reaches_the_caller(self, world: World) -> None:
        world.service.status, world.service.body = 422, b'{"error": {"message": "unsupported filter field"}}'
        response = await world.post(filters={"colour": "red"})
        assert (response.status_code, response.json()["code"]) == (422, "RET-4241")
        assert "unsupported filter field" in response.json()["message"]

    @pytest.mark.parametrize("status", [404, 500, 503])
    async def test_its_other_errors_reach_the_caller(self, world: World, status: int) -> None:
        world.service.status, world.service.body = status, b""
        response = await world.post(scope=["resources", "all_user_memory"])
        assert response.status_code == status
        assert ("retry-after" in response.headers) == (status == 503)

    async def test_scopes_are_searched_side_by_side(self, world: World) -> None:
        world.service.gate = asyncio.Event()
        scopes = ["current_chat", "resources", "all_user_memory"]
        asked = asyncio.create_task(world.post(scope=scopes, conversation_id="1"))
        await until(lambda: len(world.service.requests) == 3)
        world.service.gate.set()
        assert (await asked).status_code == 200

    async def test_a_scope_out_of_time_is_left_out_and_named(
        self, base: dict[str, Any], database: Database, graph: LocalService, stub: MemoryService, world: World
    ) -> None:
        hasty = await open_world(base, "http", database, graph, stub, timeout_ms=300)
        stub.gate, stub.slow_sessions = asyncio.Event(), {"chat:1"}
        response = await hasty.post(scope=["current_chat", "all_user_memory"], conversation_id="1")
        body = response.json()
        assert {result["source_scope"] for result in body["results"]} == {"all_user_memory"}
        ((part),) = body["degraded"]
        assert part["stage"] == "upstream"
        assert part["reason"].startswith("RET-5052: current_chat")
        alone = await hasty.post(scope="current_chat", conversation_id="1")
        assert (alone.status_code, alone.json()["code"]) == (504, "RET-5052")
        await hasty.http.aclose()


async def test_without_the_database_it_is_503_and_nothing_is_half_written(
    own_postgres: Postgres, base: dict[str, Any], graph: LocalService, stub: MemoryService
) -> None:
    from database.config import DatabaseConfig

    database = await Database.open(own_postgres.url, DatabaseConfig(migrate_at_start=True, connect_timeout_ms=500))
    world = await open_world(base, "graph", database, graph, stub)
    hasher = Hasher(GatewayConfig.model_validate({"login": LOGIN}).login)
    await world.store.add_user(UserRow("alice", hasher.hashed("key of alice"), "acme", "memory.alice"))
    await world.store.put(Resource("r-1", "book:1", "files://old"), "alice")
    assert (await world.post()).status_code == 200
    own_postgres.stop()
    response = await world.post()
    assert (response.status_code, response.json()["code"], response.json()["retryable"]) == (503, "RET-5031", True)
    assert response.headers["retry-after"]
    with pytest.raises(Exception, match="RET-5031"):
        await world.store.put(Resource("r-1", "book:2", "files://new"), "alice")
    own_postgres.start()
    assert await world.store.owned(Resource, "alice") == [Resource("r-1", "book:1", "files://old")]
    assert (await world.post()).status_code == 200
    await world.http.aclose()
    await database.close()
