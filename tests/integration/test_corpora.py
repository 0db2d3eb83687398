"""Corpora on the real graph: what is acknowledged shows once, only where it may, and whatever fails (R1–R9)."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from ray import serve
from ray.serve.schema import LoggingConfig

from corpora.rag.failures import Failures
from corpora.rag.rollout import Switches, switch_name
from database.engine import Database
from deployments import graph
from deployments.backends import open_database
from deployments.environment import Environment
from deployments.settings import Settings, parse, resolved
from tests.integration.conftest import Cluster, eventually
from tests.support.keys import Keys

Make = Callable[..., httpx.AsyncClient]
ACCOUNT = "corpora"
WAIT = {"wait_ms": 60_000}
TEA = "Alice drinks green tea from Hangzhou every morning"
NUTS = "Alice must never be served peanuts"
PAGE = {
    "url": "https://www.example.org/tea?b=2&a=1#top",
    "title": "Green tea",
    "content": "Longjing is a green tea that is grown around Hangzhou and roasted in a pan.",
}


def dimensions(conversation: str = "", user: str = "alice") -> dict[str, str]:
    return {"user_id": user, "assistant_id": "helper", "conversation_id": conversation or f"c-{uuid.uuid4().hex}"}


async def ingest(client: httpx.AsyncClient, corpus: str, body: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Ingest and wait until all of it shows."""
    response = await client.post(f"/v1/corpora/{corpus}/ingest", json=body, params=WAIT | params)
    assert response.status_code == 200, response.text
    receipt = response.json()
    assert receipt["state"] == "stored", receipt
    return receipt


async def retrieve(client: httpx.AsyncClient, corpus: str, query: str, where: dict[str, str], **more: Any) -> Any:
    body = {"query": query, "dimensions": where, "threshold": 0.2, **more}
    response = await client.post(f"/v1/corpora/{corpus}/retrieve", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def texts(answer: dict[str, Any]) -> list[str]:
    return [hit["text"] for hit in answer["hits"]]


@pytest.fixture(scope="session")
def user(client: Make) -> httpx.AsyncClient:
    return client(ACCOUNT, user_space="user:alice")


@pytest.fixture
async def database(corpus: Settings) -> AsyncIterator[Database]:
    opened = await open_database(corpus)
    yield opened
    await opened.close()


async def round_trip(client: httpx.AsyncClient) -> None:
    """Ingest, retrieve and delete in both corpora."""
    where = dimensions()
    items = [{"text": TEA, "memory_type": "fact"}, {"text": NUTS, "memory_type": "constraint", "source_id": "nuts/1"}]
    turns = [{"speaker": "Alice", "text": "I was in Kyoto in spring."}, {"speaker": "Bot", "text": "How were temples?"}]
    body = {**where, "items": items, "dialogues": [{"session_id": "D1", "date": "8 May, 2023", "turns": turns}]}
    receipt = await ingest(client, "memory", body)
    assert {source["chunks"] for source in receipt["sources"]} == {1, 2}
    answer = await retrieve(client, "memory", "green tea from Hangzhou", where)
    assert texts(answer)[0] == TEA
    assert (answer["path"], answer["degraded"]) == ("rag", [])
    assert any("Kyoto" in text for text in texts(await retrieve(client, "memory", "Kyoto in spring", where)))

    session = {"session_id": f"s-{uuid.uuid4().hex}"}
    page = (await ingest(client, "web", {**session, "pages": [PAGE]}))["sources"][0]["source_id"]
    (hit,) = (await retrieve(client, "web", "green tea around Hangzhou", session))["hits"]
    assert (hit["source_id"], hit["attrs"]["domain"], hit["title"]) == (page, ["www.example.org"], "Green tea")
    assert PAGE["content"][hit["start"] : hit["end"]] == hit["text"]

    gone = await client.delete(f"/v1/corpora/memory/sources/{quote('nuts/1', safe='')}", params=where | WAIT)
    assert (gone.status_code, gone.json()["state"]) == (200, "stored")
    assert NUTS not in texts(await retrieve(client, "memory", NUTS, where, threshold=0))
    assert page.startswith("https://")
    gone = await client.delete(f"/v1/corpora/web/sources/{quote(page, safe='')}", params=session | WAIT)
    assert (gone.status_code, gone.json()["state"]) == (200, "stored")
    assert (await retrieve(client, "web", "green tea", session, threshold=0))["hits"] == []


async def test_what_is_ingested_is_retrieved_until_it_is_deleted(user: httpx.AsyncClient) -> None:
    """R1, R2, R4, R5."""
    await round_trip(user)


async def test_the_same_on_elasticsearch(
    cluster: Cluster, settings: Settings, elasticsearch_url: str, tmp_path: Path
) -> None:
    """A graph of its own on the other backend, with a queue of its own."""
    elastic = {
        "prefix": f"corpora-{uuid.uuid4().hex[:12]}",
        "connection": {"hosts": [elasticsearch_url], "request_timeout_ms": 20_000},
        "layout": {"shards": 1},
    }
    raw = settings.model_dump(mode="json", exclude_unset=True)
    raw["index"] = {"backend": "elasticsearch", "elastic": elastic}
    raw["database"] = {"url": f"sqlite:///{tmp_path}/queue.db"}
    # Fewer processes to start.
    raw["stages"] = {"colocate": ["planner", "expander", "rechecker", "reranker", "assembler"]}
    raw["knowledge_base"] = {"enabled": False}
    other, quiet = resolved(parse(raw), Environment()), LoggingConfig(enable_access_log=False)
    app = {"name": "elastic", "route_prefix": "/elastic", "logging_config": quiet}
    await asyncio.to_thread(serve.run, graph.build(other), **app)
    try:
        token, _ = await asyncio.to_thread(Keys(other).create, ACCOUNT, user_space="user:alice")
        where, headers = f"{settings.url}/elastic", {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=where, headers=headers, timeout=90) as http:
            await round_trip(http)
    finally:
        await asyncio.to_thread(serve.delete, "elastic")


@pytest.mark.parametrize("missing", ["user_id", "assistant_id", "conversation_id"])
async def test_a_missing_dimension_refuses_and_is_named(user: httpx.AsyncClient, missing: str) -> None:
    """R6: for every kind of request."""
    where = dimensions()
    where.pop(missing)
    for method, path, sent in (
        ("POST", "ingest", {"json": {**where, "items": [{"text": TEA}]}}),
        ("POST", "retrieve", {"json": {"query": TEA, "dimensions": where}}),
        ("POST", "sources/delete", {"json": {"source_ids": ["x"], "dimensions": where}}),
        ("DELETE", "sources/x", {"params": where}),
    ):
        response = await user.request(method, f"/v1/corpora/memory/{path}", **sent)
        error = response.json()
        assert (response.status_code, error["code"], error["field"]) == (422, "RET-4222", missing)


async def test_web_needs_a_session_or_a_query(user: httpx.AsyncClient) -> None:
    """R6."""
    response = await user.post("/v1/corpora/web/retrieve", json={"query": "tea"})
    assert (response.status_code, response.json()["field"]) == (422, "session_id, query_id")


async def test_no_user_reaches_what_is_another_users(user: httpx.AsyncClient, client: Make) -> None:
    """C20: neither by reading, nor by writing, nor by deleting; nor does another account."""
    where, session = dimensions(), {"session_id": f"s-{uuid.uuid4().hex}"}
    receipt = await ingest(user, "memory", {**where, "items": [{"text": TEA, "source_id": "tea"}]})
    await ingest(user, "web", {**session, "pages": [PAGE]})
    bob, rival = client(ACCOUNT, user_space="user:bob"), client("rival", user_space="user:alice")
    for method, path, sent in (
        ("POST", "retrieve", {"json": {"query": TEA, "dimensions": where}}),
        ("POST", "ingest", {"json": {**where, "items": [{"text": "forged", "source_id": "tea"}]}}),
        ("POST", "sources/delete", {"json": {"source_ids": ["tea"], "dimensions": where}}),
        ("DELETE", "sources/tea", {"params": where}),
    ):
        response = await bob.request(method, f"/v1/corpora/memory/{path}", **sent)
        assert (response.status_code, response.json()["code"]) == (403, "RET-4031")
    assert (await retrieve(bob, "web", "green tea", session, threshold=0))["hits"] == []
    for corpus, place in (("memory", where), ("web", session)):
        assert (await retrieve(rival, corpus, "green tea", place, threshold=0))["hits"] == []
    response = await rival.get(f"/v1/corpora/memory/receipts/{receipt['receipt_id']}")
    assert (response.status_code, response.json()["code"]) == (404, "RET-4042")
    assert texts(await retrieve(user, "memory", TEA, where)) == [TEA]
    plain = (await user.post("/v1/search_memory", json={"query": "Longjing", "top_k": 50})).json()
    assert not any(hit["owner_space"].startswith("web.") for hit in plain["hits"])
    assert texts(await retrieve(client(ACCOUNT, role="admin"), "memory", TEA, where)) == [TEA]


async def test_a_switch_changes_the_path_of_the_running_service(
    user: httpx.AsyncClient, database: Database, corpus: Settings
) -> None:
    """R8: rollback without a restart, and back."""
    where, switches = dimensions(), Switches(database)
    await ingest(user, "memory", {**where, "items": [{"text": TEA}]})
    otherwise = corpus.corpora.rollout.switch("memory")

    async def path() -> str:
        answer = await retrieve(user, "memory", "green tea from Hangzhou", where)
        assert texts(answer) == [TEA]
        return str(answer["path"])

    assert await path() == "rag"
    try:
        await switches.set(switch_name("memory"), otherwise, enabled=False, shadow=True)
        await eventually(lambda: _is(path(), "keyword"))
    finally:
        await switches.reset(switch_name("memory"))
    await eventually(lambda: _is(path(), "rag"))


async def test_a_cached_answer_is_marked_and_gone_with_the_next_write(user: httpx.AsyncClient) -> None:
    """R9."""
    where = dimensions()
    await ingest(user, "memory", {**where, "items": [{"text": TEA}]})

    async def ask() -> dict[str, Any]:
        return await retrieve(user, "memory", "green tea and peanuts", where, threshold=0)

    assert not (await ask())["cached"]
    # The writer merges files once it is done, which is a write, too.
    await eventually(lambda: _field(ask(), "cached"))
    await ingest(user, "memory", {**where, "items": [{"text": NUTS}]})
    answer = await ask()
    assert (answer["cached"], set(texts(answer))) == (False, {TEA, NUTS})


async def test_documents_acknowledged_before_a_kill_are_there_once_after_it(user: httpx.AsyncClient) -> None:
    """R2: each ingest replica is killed -9 while it works, until all is acknowledged."""
    where = dimensions()
    items = [{"text": f"Note {number} about gardens", "source_id": f"n{number}"} for number in range(120)]
    receipts: list[str] = []
    killed: set[int] = set()
    for start in range(0, len(items), 40):
        living = await eventually(lambda: pids("ingest") - killed)
        body = {**where, "items": items[start : start + 40]}
        response = await user.post("/v1/corpora/memory/ingest", json=body)
        assert response.status_code == 202, response.text
        receipts.append(response.json()["receipt_id"])
        for pid in living:
            os.kill(pid, signal.SIGKILL)
        killed.update(living)

    async def settled() -> bool:
        states = [(await user.get(f"/v1/corpora/memory/receipts/{each}")).json()["state"] for each in receipts]
        return set(states) == {"stored"}

    await eventually(settled, every=0.5)
    for number in (0, 37, 119):
        answer = await retrieve(user, "memory", f"Note {number} about gardens", where, threshold=0, top_k=50)
        found = [hit["source_id"] for hit in answer["hits"]]
        assert len(found) == len(set(found)) == 50
        assert f"n{number}" in found


async def test_a_batch_stores_what_is_right_and_names_what_is_not(user: httpx.AsyncClient) -> None:
    where = dimensions()
    bodies = [
        {**where, "items": [{"text": TEA}]},
        {**where, "items": [{"text": NUTS, "colour": "red"}]},
        {"user_id": "bob", "assistant_id": "helper", "conversation_id": "x", "items": [{"text": "forged"}]},
        {**where, "items": [{"text": "Alice plays the cello"}]},
    ]
    response = await user.post("/v1/corpora/memory/ingest/batch", json={"requests": bodies}, params=WAIT)
    answer = response.json()
    assert response.status_code == 200, answer
    assert [(each["index"], each["code"], each["field"]) for each in answer["refused"]] == [
        (1, "RET-4220", "items.0.colour"),
        (2, "RET-4031", "user_id"),
    ]
    assert [source["state"] for source in answer["receipt"]["sources"]] == ["stored", "stored"]

    requests = [
        {"query": "green tea", "dimensions": where, "threshold": 0.1},
        {"query": "green tea", "dimensions": {}},
        {"query": "cello", "dimensions": where, "threshold": 0.1},
    ]
    response = await user.post("/v1/corpora/memory/retrieve/batch", json={"requests": requests})
    one, two, three = response.json()["results"]
    assert (texts(one["answer"])[0], texts(three["answer"])[0]) == (TEA, "Alice plays the cello")
    assert (two["answer"], two["error"]["code"]) == (None, "RET-4222")

    sources = [source["source_id"] for source in answer["receipt"]["sources"]]
    body = {"source_ids": [*sources, "never-there"], "dimensions": where}
    response = await user.post("/v1/corpora/memory/sources/delete", json=body, params=WAIT)
    assert (response.status_code, response.json()["state"]) == (200, "stored")
    assert (await retrieve(user, "memory", "green tea", where, threshold=0))["hits"] == []


async def test_batches_are_bounded(user: httpx.AsyncClient, corpus: Settings) -> None:
    http = corpus.corpora.serving.http
    for path, body in (
        ("ingest/batch", {"requests": [{}] * (http.max_bodies + 1)}),
        ("retrieve/batch", {"requests": [{"query": "x"}] * (http.max_retrievals + 1)}),
        ("sources/delete", {"source_ids": ["x"] * (http.max_deletions + 1), "dimensions": dimensions()}),
    ):
        response = await user.post(f"/v1/corpora/memory/{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "RET-4220")
    response = await user.post("/v1/corpora/memory/ingest", content=b" " * (http.max_body_bytes + 1))
    assert response.status_code == 413
    response = await user.post("/v1/corpora/memory/retrieve", content=b" " * 300_000)
    assert response.status_code == 413


async def test_an_unknown_corpus_is_404_and_all_is_behind_the_key(user: httpx.AsyncClient, served: str) -> None:
    response = await user.post("/v1/corpora/nothing/retrieve", json={"query": "x"})
    error = response.json()
    assert (response.status_code, error["code"], error["field"]) == (404, "RET-4042", "corpus")
    assert "memory, web" in error["remedy"]
    assert (await user.get("/v1/corpora")).json()["corpora"] == ["memory", "web"]
    async with httpx.AsyncClient(base_url=served) as stranger:
        for method, path in (
            ("GET", ""),
            ("POST", "/memory/ingest"),
            ("POST", "/memory/retrieve/batch"),
            ("DELETE", "/memory/sources/x"),
            ("GET", "/memory/receipts/x"),
        ):
            assert (await stranger.request(method, f"/v1/corpora{path}")).status_code == 401


async def test_an_expired_memory_never_shows(user: httpx.AsyncClient) -> None:
    """R4: ttl_at."""
    where = dimensions()
    await ingest(user, "memory", {**where, "items": [{"text": TEA, "ttl_at": "2020-01-01"}, {"text": NUTS}]})
    assert texts(await retrieve(user, "memory", "Alice", where, threshold=0)) == [NUTS]


async def test_actions_are_counted_by_corpus(user: httpx.AsyncClient, cluster: Cluster) -> None:
    """R7: hit rate, latency, fallback rate, and the backlog."""
    where = dimensions()
    await ingest(user, "memory", {**where, "items": [{"text": TEA}]})
    await retrieve(user, "memory", "green tea from Hangzhou", where)
    await user.post("/v1/corpora/memory/retrieve", json={"query": "x"})

    def counted() -> bool:
        now = cluster.scrape()
        return (
            now.total("corpus_retrieve_total", corpus="memory", path="rag", outcome="ok") > 0
            and now.total("corpus_retrieve_total", corpus="memory", outcome="RET-4222") > 0
            and now.total("corpus_retrieve_ms_count", corpus="memory") > 0
            and now.total("corpus_found_count_total", corpus="memory") > 0
            and now.total("corpus_hit_count_total", corpus="memory") > 0
            and now.total("corpus_cache_count_total", corpus="memory", use="miss") > 0
            and now.total("corpus_write_source_count_total", corpus="memory", action="ingest") > 0
            and now.total("corpus_ingest_count_total", corpus="memory", result="done") > 0
            and {sample.labels["state"] for sample in now.find("corpus_backlog", corpus="web")}
            == {"pending", "running", "dead"}
        )

    await eventually(counted)


async def test_each_action_is_one_line_of_the_log_without_a_word_of_it(user: httpx.AsyncClient, logs: Path) -> None:
    """R7: trace_id, corpus, action, fallback_reason, latency_ms, hit_count."""
    where, trace = dimensions(), f"corpus-{uuid.uuid4().hex}"
    user_headers = {"x-request-id": trace}
    body = {**where, "items": [{"text": "the secret garden of words"}]}
    await user.post("/v1/corpora/memory/ingest", json=body, params=WAIT, headers=user_headers)
    asked = {"query": "words of the secret garden", "dimensions": where}
    await user.post("/v1/corpora/memory/retrieve", json=asked, headers=user_headers)

    def lines() -> list[str]:
        files = logs.glob("serve/replica_*.log")
        found = [line for file in files for line in file.read_text(errors="replace").splitlines() if trace in line]
        return found if len(found) >= 3 else []

    found = await eventually(lines)
    actions = {line.split('"action": "')[1].split('"')[0] for line in found}
    assert actions == {"ingest", "store", "retrieve"}
    (line,) = [line for line in found if '"retrieve"' in line]
    assert all(f'"{name}"' in line for name in ("trace_id", "corpus", "fallback_reason", "latency_ms", "hit_count"))
    assert not any("garden" in line for line in found)


async def test_nothing_failed_for_good(database: Database) -> None:
    """The last test here: the dead-letter list is empty after all of the above."""
    assert await Failures(database).list() == []


def pids(deployment: str) -> set[int]:
    """The processes of a deployment's running replicas."""
    details = serve.context._get_global_client().get_serve_details()
    replicas = details["applications"][graph.APP]["deployments"][deployment]["replicas"]
    return {replica["pid"] for replica in replicas if replica["state"] == "RUNNING"}


async def _is(found: Any, wanted: object) -> bool:
    return bool(await found == wanted)


async def _field(found: Any, name: str) -> bool:
    return bool((await found)[name])
