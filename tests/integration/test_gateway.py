"""POST /memories/search over the graph and over an upstream service, on SQLite and PostgreSQL: seed 2's acceptance."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.deadline import Deadline
from contracts.ports import Embeddable
from corpora.rag.documents import SourceChunker, index_source
from database.engine import Database
from deployments.api import Api
from deployments.backends import open_writer
from deployments.environment import Environment
from deployments.gateway.api import GatewayRoute
from deployments.gateway.imports import documents
from deployments.gateway.opening import open_gateway
from deployments.limits.limiter import unlimited
from deployments.local import LocalService, open_local
from deployments.settings import ServerSettings, Settings, parse, resolved
from gateway.config import GatewayConfig
from gateway.login import Hasher
from gateway.store import Agent, GatewayStore, Override, Resource, Tombstone, UserRow
from gateway.upstream import Upstream, UpstreamAnswer, UpstreamQuery, User
from models.load import load_embedder
from tests.support.memory_service import MemoryService, memory_service
from tests.support.postgres import Postgres
from tests.support.waiting import until

LOGIN = {"time_cost": 1, "memory_kib": 1024}
DAY = "2026-03-01T08:00:00Z"
# What each owner remembers, in the upstream's form; the graph gets the same through the import.
MEMORIES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "alice": {
        "episodes": [
            {"id": "e-chat", "session_id": "chat:1", "episode": "Alice ordered green tea in the chat", "score": 0.9},
            {"id": "e-book", "session_id": "book:1", "episode": "The tea book says green tea is old", "score": 0.8},
            {"id": "e-bobs", "session_id": "book:bob", "episode": "A note on green tea of a shared book", "score": 0.7},
            {"id": "e-none", "session_id": "chat:2", "episode": "Green tea again, elsewhere", "score": 0.6},
        ],
        "profiles": [{"id": "p-1", "profile_data": {"likes": "green tea"}, "score": None}],
        "unprocessed_messages": [
            {
                "id": "m-1",
                "session_id": "chat:1",
                "content": "one green tea please",
                "sender_id": "alice",
                "role": "user",
            }
        ],
    },
    "bob": {"episodes": [{"id": "e-secret", "session_id": "chat:1", "episode": "Bob hides green tea", "score": 1.0}]},
    "chef": {
        "agent_cases": [
            {"id": "c-1", "session_id": "chat:1", "task_intent": "make green tea", "approach": "boil water"}
        ],
        "agent_skills": [{"id": "s-1", "name": "green tea", "description": "how to", "content": "boil, pour, wait"}],
    },
}
for owner in MEMORIES.values():
    for array in owner.values():
        for memory in array:
            memory["timestamp"] = DAY
            memory.setdefault("score", 0.5)
SPACES = {"alice": "memory.alice", "bob": "memory.bob", "chef": "agent-memory.chef"}


class Recording:
    """An upstream that remembers what was sent to the one behind it."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self.sent: list[dict[str, Any]] = []

    def check(self, filters: Any) -> None:
        self._inner.check(filters)

    async def search(self, user: User, deadline: Deadline, query: UpstreamQuery) -> UpstreamAnswer:
        self.sent.append(query.body())
        return await self._inner.search(user, deadline, query)

    async def close(self) -> None:
        await self._inner.close()


class FakeMetrics:
    """Forgets what would be counted."""

    def under_way(self) -> nullcontext[None]:
        return nullcontext()

    def ended(self, *_: Any) -> None:
        """Nothing."""


@dataclass
class World:
    """The route over one upstream and one database."""

    http: httpx.AsyncClient
    store: GatewayStore
    upstream: Recording
    service: MemoryService

    async def post(self, user: str = "alice", key: str = "", **fields: Any) -> httpx.Response:
        body = {"user_id": user, "user_key": key or f"key of {user}", "query": "green tea", **fields}
        return await self.http.post("/memories/search", json=body)

    async def found(self, user: str = "alice", **fields: Any) -> list[dict[str, Any]]:
        response = await self.post(user, **fields)
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["results"]
        return results

    async def ids(self, user: str = "alice", **fields: Any) -> set[str]:
        return {result["id"] for result in await self.found(user, **fields)}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    stages = ("embedder", "seed_search", "expander", "rechecker")
    budgets = {stage: {"budget_ms": 20_000, "reserve_ms": 0} for stage in stages}
    return {
        "data_dir": str(tmp_path_factory.mktemp("gateway")),
        "embedder": {"backend": "deterministic"},
        "chain": {"timeout_ms": 60_000, "budgets": budgets},
        "server": {"read_timeout_ms": 20_000},
    }


def settings_of(base: dict[str, Any], **gateway: Any) -> Settings:
    return resolved(parse(base | {"gateway": {"enabled": True, "login": LOGIN, **gateway}}), Environment())


@pytest.fixture(scope="module")
async def graph(base: dict[str, Any]) -> AsyncIterator[LocalService]:
    """The graph in this process, with the memories in its index."""
    settings = settings_of(base)
    index, embedder = await open_writer(settings.data_dir, settings.index), load_embedder(settings.embedder)
    for name, arrays in MEMORIES.items():
        listed = [(array, item) for array, items in arrays.items() for item in items]
        for source in documents(listed, SPACES[name], "internal"):  # type: ignore[arg-type]
            document = SourceChunker().document("memory", source)
            vectors = (await embedder.embed([node.content for node in document.nodes], "passage")).vectors
            await index.put(
                "acme", index_source(source.space, "memory"), [Embeddable(document, vectors)], embedder.model
            )
    await index.close()
    service = await open_local(settings)
    yield service
    await service.close()


@pytest.fixture(params=["graph", "http"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def stub() -> AsyncIterator[MemoryService]:
    async with memory_service() as service:
        service.owners = MEMORIES
        yield service


async def open_world(
    base: dict[str, Any], kind: str, database: Database, graph: LocalService, stub: MemoryService, **gateway: Any
) -> World:
    settings = settings_of(base, upstream=kind, http={"base_url": stub.url}, **gateway)
    opened = open_gateway(settings, database, graph)
    upstream = opened._upstream = Recording(opened._upstream)
    metrics: Any = FakeMetrics()
    api = Api(graph, None, unlimited, None, ServerSettings(), metrics)  # type: ignore[arg-type]
    app = api.app(GatewayRoute(opened, metrics, None))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test", timeout=60)
    return World(http, GatewayStore(database), upstream, stub)


@pytest.fixture
async def world(
    base: dict[str, Any], kind: str, database: Database, graph: LocalService, stub: MemoryService
) -> AsyncIterator[World]:
    opened = await open_world(base, kind, database, graph, stub)
    hasher = Hasher(GatewayConfig.model_validate({"login": LOGIN}).login)
    for user in ("alice", "bob"):
        await opened.store.add_user(UserRow(user, hasher.hashed(f"key of {user}"), "acme", f"memory.{user}"))
    await opened.store.put(Resource("r-1", "book:1", "files://alice/tea.pdf"), "alice")
    await opened.store.put(Resource("r-bob", "book:bob", "files://bob/private.pdf"), "bob")
    yield opened
    await opened.http.aclose()
    await opened.upstream.close()


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
