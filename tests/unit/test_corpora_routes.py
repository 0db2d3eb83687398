"""The routes of corpora over a stand-in that remembers what it is asked."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from contracts.context import RequestContext
from contracts.errors import DatabaseDown, NotFound, StrataError
from corpora.rag.types import Receipt, Retrieved
from deployments.api import Api
from deployments.corpora.api import CorporaRoutes
from deployments.corpora.messages import BatchReceipt
from deployments.corpora.openapi import section
from deployments.corpora.settings import CorporaHttp
from deployments.identity.authenticator import open_authenticator
from deployments.identity.caller import Caller
from deployments.identity.config import IdentitySettings
from deployments.identity.keys import KeyStore
from deployments.metrics import RequestMetrics
from deployments.openapi import Readiness, document
from deployments.settings import ServerSettings
from tests.support.waiting import until


class FakeCorpora:
    """Remembers calls."""

    names = ("memory", "web")

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.state: Any = "stored"
        self.error: StrataError | None = None
        self.gate, self.held = asyncio.Event(), 0
        self.gate.set()

    def check(self, corpus: str) -> None:
        if corpus not in self.names:
            raise NotFound("There is no such corpus.", field="corpus")

    async def hold(self) -> None:
        self.held += 1
        await self.gate.wait()
        self.held -= 1

    def _receipt(self, name: str, ctx: RequestContext, *asked: Any) -> Receipt:
        self.calls.append((name, ctx.account_id, *asked))
        if self.error:
            raise self.error
        return Receipt("receipt", asked[0], self.state, (), ctx.request_id)

    async def ingest(self, ctx: RequestContext, *asked: Any) -> Receipt:
        await self.hold()
        return self._receipt("ingest", ctx, *asked)

    async def ingest_batch(self, ctx: RequestContext, *asked: Any) -> BatchReceipt:
        receipt = self._receipt("ingest_batch", ctx, *asked)
        return BatchReceipt(ctx.request_id, asked[0], receipt if self.state != "stored" else None)

    async def delete(self, ctx: RequestContext, *asked: Any) -> Receipt:
        return self._receipt("delete", ctx, *asked)

    async def receipt(self, ctx: RequestContext, *asked: Any) -> Receipt:
        return self._receipt("receipt", ctx, *asked)

    async def retrieve(self, ctx: RequestContext, *asked: Any) -> Retrieved:
        self.calls.append(("retrieve", ctx.account_id, *asked))
        return Retrieved(ctx.request_id, asked[0], ())

    async def retrieve_batch(self, ctx: RequestContext, *asked: Any) -> Retrieved:
        return await self.retrieve(ctx, *asked)


@pytest.fixture
def corpora() -> FakeCorpora:
    return FakeCorpora()


@pytest.fixture
async def client(corpora: FakeCorpora, key_store: KeyStore) -> AsyncIterator[httpx.AsyncClient]:
    metrics = RequestMetrics()
    token, _ = await key_store.create("acme", user_space="user:alice")

    async def ready() -> Readiness:
        return Readiness(True, {})

    @asynccontextmanager
    async def unlimited(caller: Caller) -> AsyncIterator[None]:
        yield

    authenticator = await open_authenticator(key_store, IdentitySettings(), None, metrics.unauthenticated)
    settings = ServerSettings(max_body_bytes=1024)
    api = Api(None, authenticator, unlimited, ready, settings, metrics)  # type: ignore[arg-type]
    routes = CorporaRoutes(corpora, CorporaHttp(max_body_bytes=200_000, max_writes=2))  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=api.app(routes))
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
        yield http


@pytest.mark.parametrize(
    "source_id",
    [
        "plain",
        "a/b/c",
        "https://example.org/a?b=1&c=d#frag",
        "100%",
        "ü 茶",
        "a//b",
        "a/",
        "delete",
        "?user_id=bob",
    ],
)
async def test_a_source_may_have_any_name(client: httpx.AsyncClient, corpora: FakeCorpora, source_id: str) -> None:
    path = f"/v1/corpora/memory/sources/{quote(source_id, safe='')}"
    response = await client.delete(path, params={"user_id": "alice", "wait_ms": "7"})
    assert response.status_code == 200, response.text
    ((_, account, corpus, body, wait_ms),) = corpora.calls
    assert (account, corpus, wait_ms) == ("acme", "memory", 7)
    assert (body.source_ids, body.dimensions) == ([source_id], {"user_id": "alice"})


async def test_a_parameter_given_twice_is_refused(client: httpx.AsyncClient, corpora: FakeCorpora) -> None:
    """Which of two dimensions counts must not be a matter of taste."""
    response = await client.delete("/v1/corpora/memory/sources/x?user_id=alice&user_id=bob")
    assert (response.status_code, response.json()["field"]) == (422, "user_id")
    assert corpora.calls == []


@pytest.mark.parametrize("wait_ms", ["-1", "1.5", "x", "", "1" * 10, "٣", "1e3"])
async def test_a_wait_that_is_no_number_is_refused(
    client: httpx.AsyncClient, corpora: FakeCorpora, wait_ms: str
) -> None:
    for method, path in (("POST", "ingest"), ("DELETE", "sources/x")):
        content = b"{}" if method == "POST" else None
        response = await client.request(
            method, f"/v1/corpora/memory/{path}", params={"wait_ms": wait_ms}, content=content
        )
        assert (response.status_code, response.json()["field"]) == (422, "wait_ms")
    assert corpora.calls == []


@pytest.mark.parametrize(("state", "status"), [("stored", 200), ("failed", 200), ("pending", 202)])
async def test_what_does_not_show_yet_is_202(
    client: httpx.AsyncClient, corpora: FakeCorpora, state: str, status: int
) -> None:
    corpora.state = state
    for path, body in (
        ("ingest", {}),
        ("ingest/batch", {"requests": [{}]}),
        ("sources/delete", {"source_ids": ["x"]}),
    ):
        assert (await client.post(f"/v1/corpora/memory/{path}", json=body)).status_code == status
    assert (await client.get("/v1/corpora/memory/receipts/r")).status_code == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"x", b"1", b"\xff", b"[" * 100_000, b'{"a": "\\ud800"}'])
async def test_what_is_no_object_is_422(client: httpx.AsyncClient, corpora: FakeCorpora, body: bytes) -> None:
    for path in ("ingest", "ingest/batch", "sources/delete"):
        response = await client.post(f"/v1/corpora/memory/{path}", content=body)
        assert (response.status_code, response.json()["code"]) == (422, "RET-4220")
    assert corpora.calls == []


async def test_an_ingest_has_a_limit_of_its_own(client: httpx.AsyncClient, corpora: FakeCorpora) -> None:
    large, larger = b'{"a": "' + b"x" * 150_000 + b'"}', b" " * 200_001
    assert (await client.post("/v1/corpora/memory/ingest", content=large)).status_code == 200
    assert (await client.post("/v1/corpora/memory/ingest", content=larger)).status_code == 413
    assert (await client.post("/v1/corpora/memory/retrieve", content=large)).status_code == 413


async def test_an_unknown_corpus_is_refused_by_every_route_and_logged_without_its_name(
    client: httpx.AsyncClient, corpora: FakeCorpora, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        for method, path in (("POST", "ingest"), ("POST", "retrieve"), ("DELETE", "sources/x"), ("GET", "receipts/x")):
            response = await client.request(method, f"/v1/corpora/secret-name/{path}")
            assert (response.status_code, response.json()["code"]) == (404, "RET-4042")
    assert (corpora.calls, len(caplog.records)) == ([], 4)
    assert "secret-name" not in caplog.text


async def test_only_so_many_write_at_once_and_retrievals_go_on(client: httpx.AsyncClient, corpora: FakeCorpora) -> None:
    corpora.gate.clear()
    writing = [asyncio.create_task(client.post("/v1/corpora/memory/ingest", json={})) for _ in range(2)]
    await until(lambda: corpora.held == 2)
    for method, path in (("POST", "ingest"), ("DELETE", "sources/x")):
        refused = await client.request(method, f"/v1/corpora/memory/{path}")
        assert (refused.status_code, refused.json()["code"]) == (429, "RET-4291")
    assert (await client.post("/v1/corpora/memory/retrieve", json={"query": "x"})).status_code == 200
    corpora.gate.set()
    assert {response.status_code for response in await asyncio.gather(*writing)} == {200}
    assert (await client.post("/v1/corpora/memory/ingest", json={})).status_code == 200


async def test_errors_have_the_shape_of_all_others(client: httpx.AsyncClient, corpora: FakeCorpora) -> None:
    corpora.error = DatabaseDown("The database can't be asked.")
    response = await client.post("/v1/corpora/memory/ingest", json={})
    assert (response.status_code, response.json()["code"], response.headers["retry-after"]) == (503, "RET-5031", "1")


async def test_the_openapi_has_every_route(client: httpx.AsyncClient) -> None:
    served = (await client.get("/openapi.json")).json()["paths"]
    assert served == document(section())["paths"]
    operations = [each["operationId"] for path in served.values() for each in path.values()]
    assert len(operations) == len(set(operations))
    assert sum(path.startswith("/v1/corpora") for path in served) == 8
