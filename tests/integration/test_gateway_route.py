"""POST /memories/search on the real graph: memories ingested as a corpus are found by each method; metrics and log."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from corpora.rag.queue import IngestQueue
from deployments.backends import open_database
from deployments.gateway.imports import documents
from deployments.settings import Settings
from gateway.login import Hasher
from gateway.memories import user_space
from gateway.store import GatewayStore, Resource, UserRow
from tests.integration.conftest import Cluster, Scrape, eventually, log_lines

ACCOUNT = "gateway"
KEY = "a key that nobody guesses"
ITEM = {"user_id": "gwen", "assistant_id": "helper", "conversation_id": "77"}
BODY: dict[str, Any] = {"user_id": "gwen", "user_key": KEY, "query": "oolong tea", "include_profile": False}
IMPORTED = [
    ("episodes", {"id": "e-1", "session_id": "book:9", "episode": "The tea book praises oolong tea"}),
    ("profiles", {"id": "p-1", "profile_data": {"drinks": "oolong tea"}}),
]


@pytest.fixture(scope="module")
async def gwen(served: str, settings: Settings, client: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A user with memories: of the memory corpus, and imported ones."""
    database = await open_database(settings)
    store = GatewayStore(database)
    key_hash = Hasher(settings.gateway.login).hashed(KEY)
    await store.add_user(UserRow("gwen", key_hash, ACCOUNT, user_space("gwen")))
    await store.put(Resource("r-1", "book:9", "files://gwen/tea.pdf"), "gwen")
    imported = list(documents(IMPORTED, user_space("gwen"), "internal"))  # type: ignore[arg-type]
    await IngestQueue(database, settings.corpora.ingest).submit(ACCOUNT, "memory", imported)
    writer = client(ACCOUNT, user_space="user:gwen")
    body = ITEM | {
        "items": [{"text": "Gwen orders oolong tea at the office", "source_id": "i-1"}],
        "dialogues": [{"session_id": "d-1", "turns": [{"speaker": "Gwen", "text": "One oolong tea, please"}]}],
    }
    response = await writer.post("/v1/corpora/memory/ingest", json=body, params={"wait_ms": 60_000})
    assert response.json()["state"] == "stored"
    async with httpx.AsyncClient(base_url=served, timeout=90) as http:
        await eventually(lambda: _all_show(http))
        yield http
    await database.close()


async def _all_show(http: httpx.AsyncClient) -> bool:
    response = await http.post("/memories/search", json=BODY)
    assert response.status_code == 200, response.text
    return len(response.json()["results"]) == 3


@pytest.mark.parametrize("method", ["keyword", "hybrid", "agentic"])
async def test_memories_of_the_corpus_are_found_by_words(gwen: httpx.AsyncClient, method: str) -> None:
    found = (await gwen.post("/memories/search", json=BODY | {"method": method})).json()["results"]
    assert {result["id"]: (result["memory_type"], result["session_id"]) for result in found} == {
        "i-1": ("episode", "chat:77"),
        "e-1": ("episode", "book:9"),
        next(r["id"] for r in found if "#" in r["id"]): ("unprocessed_message", "chat:77"),
    }


async def test_memories_of_the_corpus_are_found_by_vector(gwen: httpx.AsyncClient) -> None:
    """Vectors are made by hashing here: only the text itself is near."""
    text = "Gwen orders oolong tea at the office"
    (found,) = (
        await gwen.post("/memories/search", json=BODY | {"method": "vector", "query": text, "radius": 0.9})
    ).json()["results"]
    assert found["id"] == "i-1"
    assert found["score"] > 0.99


async def test_scopes_resources_and_profiles_on_the_graph(gwen: httpx.AsyncClient) -> None:
    scopes = {"scope": ["current_chat", "resources"], "conversation_id": "77", "include_profile": True}
    found = (await gwen.post("/memories/search", json=BODY | scopes)).json()["results"]
    by_id = {result["id"]: result for result in found}
    assert by_id["e-1"]["source_scope"] == "resources"
    assert by_id["e-1"]["resource_uri"] == "files://gwen/tea.pdf"
    assert by_id["i-1"]["source_scope"] == "current_chat"
    assert json.loads(by_id["p-1"]["text"]) == {"drinks": "oolong tea"}


async def test_a_filter_is_refused_and_a_key_is_needed(gwen: httpx.AsyncClient) -> None:
    for change, status, code in (
        ({"filters": {"owner_id": "bob"}}, 400, "RET-4004"),
        ({"top_k": 0}, 422, "RET-4220"),
        ({"user_key": "wrong"}, 401, "RET-4011"),
        ({"user_id": "nobody"}, 401, "RET-4011"),
    ):
        response = await gwen.post("/memories/search", json=BODY | change)
        assert (response.status_code, response.json()["code"]) == (status, code)


async def test_a_search_is_counted_and_logged_without_its_words(
    gwen: httpx.AsyncClient, cluster: Cluster, logs: Path
) -> None:
    words = {"query": "xylophone", "method": "keyword", "filters": {"sender_id": "zanzibar"}}
    before = cluster.scrape().total("gateway_search_total", method="keyword", outcome="ok")
    await asyncio.gather(*(gwen.post("/memories/search", json=BODY | words) for _ in range(3)))

    def counted() -> bool:
        now: Scrape = cluster.scrape()
        return now.total("gateway_search_total", method="keyword", outcome="ok") >= before + 3

    await eventually(counted)
    assert cluster.scrape().total("gateway_login_refused_count_total", reason="key_wrong") >= 1
    lines = log_lines(logs, "serve/*ingress*.log")
    assert [line for line in lines if '"memories_search"' in line and '"gwen"' in line]
    assert not [line for line in lines if "xylophone" in line or "zanzibar" in line or KEY in line]
