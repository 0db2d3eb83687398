"""The gateway over either upstream and either database, as a client meets it."""

from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass
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
from gateway.store import GatewayStore, Resource, UserRow
from gateway.upstream import Upstream, UpstreamAnswer, UpstreamQuery, User
from models.load import load_embedder
from tests.support.memory_service import MemoryService, memory_service

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
