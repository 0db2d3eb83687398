"""The HTTP API over a stand-in service, without Ray: every error has a status, a code and no internals."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import httpx
import pytest

from contracts import errors
from contracts.context import RequestContext
from contracts.errors import Overloaded, RateLimited, RecallFailed, StageTimeout, StrataError
from contracts.requests import SearchMemoryRequest
from contracts.responses import ErrorBody, SearchMemoryResponse
from contracts.stages import Assembly, Drop, NextActions, RecheckResult, SeedResult
from contracts.trace import Degradation, Trace
from deployments.api import Api
from deployments.corpora.openapi import section
from deployments.gateway import openapi as gateway
from deployments.http_errors import error_response
from deployments.identity.authenticator import open_authenticator
from deployments.identity.caller import Caller
from deployments.identity.config import IdentitySettings
from deployments.identity.keys import KeyStore
from deployments.limits.admission import Admission
from deployments.limits.config import AdmissionConfig
from deployments.logs import Noted, query_hash
from deployments.openapi import Readiness, document
from deployments.settings import ServerSettings


class FakeMetrics:
    """Collects what would be counted."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def under_way(self) -> nullcontext[None]:
        return nullcontext()

    def search(self, outcome: str, seconds: float) -> None:
        self.seen.append(("search", outcome))

    def filtered(self, count: int) -> None:
        self.seen.append(("filtered", count))

    def dropped(self, reason: str, count: int) -> None:
        self.seen.append(("dropped", reason, count))

    def read(self, level: str, count: int) -> None:
        self.seen.append(("read", level, count))

    def unauthenticated(self, reason: str) -> None:
        self.seen.append(("unauthenticated", reason))

    def overloaded(self, reason: str) -> None:
        self.seen.append(("overloaded", reason))


class FakeService:
    """A service that does what the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.full = asyncio.Event()
        self.waiting = 0
        self.degraded: tuple[Degradation, ...] = ()

    async def search(self, ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        if self.gate:
            self.waiting += 1
            if self.waiting == 2:
                self.full.set()
            await self.gate.wait()
        if self.error:
            raise self.error
        await Noted(_stage(SeedResult([[], []], more=False)))(ctx, None, None)  # type: ignore[arg-type]
        await Noted(_stage(RecheckResult([], (Drop("u", 0, "gone"), Drop("v", 0, "gone")))))(ctx, None, None)  # type: ignore[arg-type]
        await Noted(_stage(Assembly((), NextActions(), 3)))(ctx, None, None)  # type: ignore[arg-type]
        return SearchMemoryResponse(ctx.request_id, (), (), (), NextActions(), Trace(), degraded=self.degraded)


def _stage(result: Any) -> Any:
    async def stage(*_: Any) -> Any:
        return result

    return stage


@pytest.fixture
def service() -> FakeService:
    return FakeService()


class FakeLimits:
    """Limits that refuse when the test says so."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.running: list[str] = []

    @asynccontextmanager
    async def admitted(self, caller: Caller) -> AsyncIterator[None]:
        if self.error:
            raise self.error
        self.running.append(caller.context.account_id)
        try:
            yield
        finally:
            self.running.remove(caller.context.account_id)


@pytest.fixture
def limits() -> FakeLimits:
    return FakeLimits()


@pytest.fixture
def metrics() -> FakeMetrics:
    return FakeMetrics()


@pytest.fixture
def admission() -> Admission:
    return Admission(AdmissionConfig(), most=2)


@pytest.fixture
async def client(
    service: FakeService, metrics: FakeMetrics, limits: FakeLimits, admission: Admission, key_store: KeyStore
) -> AsyncIterator[httpx.AsyncClient]:
    token, _ = await key_store.create("acme", user_space="user:alice")
    authenticator = await open_authenticator(key_store, IdentitySettings(), None, metrics.unauthenticated)

    async def ready() -> Readiness:
        return Readiness(False, {"planner": "ok"}, "The index is empty.")

    settings = ServerSettings(max_concurrent=2, max_body_bytes=1024, body_timeout_ms=50)
    api = Api(service, authenticator, limits.admitted, ready, settings, metrics, admission)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=api.app())
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
        yield http


async def search(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/v1/search_memory", json={"query": "x", **body})


async def test_a_stage_error_is_retryable_with_its_status_and_stage(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    for error, status in ((RecallFailed("Down.", stage="seed_search"), 503), (StageTimeout("Late."), 504)):
        service.error = error
        response = await search(client)
        body = response.json()
        assert (response.status_code, body["code"], body["stage"]) == (status, error.code, error.stage)
        assert body["retryable"]
        assert response.headers["retry-after"] == "1"


async def test_an_unexpected_error_is_500_without_internals(client: httpx.AsyncClient, service: FakeService) -> None:
    service.error = RuntimeError("password=hunter2 in /srv/app.py")
    response = await search(client)
    assert response.status_code == 500
    assert response.json()["code"] == "RET-5000"
    assert "hunter2" not in response.text
    assert "RuntimeError" not in response.text
    assert response.json()["request_id"]


async def test_beyond_max_concurrent_requests_get_429_at_once(client: httpx.AsyncClient, service: FakeService) -> None:
    service.gate = asyncio.Event()
    waiting = [asyncio.create_task(search(client)) for _ in range(2)]
    await service.full.wait()
    response = await search(client)
    assert response.status_code == 429
    assert response.json()["code"] == Overloaded.code
    assert response.headers["retry-after"] == "1"
    service.gate.set()
    assert [r.status_code for r in await asyncio.gather(*waiting)] == [200, 200]
    assert (await search(client)).status_code == 200


async def test_a_search_without_a_place_is_429_and_counted_and_its_query_not_logged(
    client: httpx.AsyncClient, admission: Admission, metrics: FakeMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """Refusing looks at nothing first, whoever asks and whatever; and reads need no place."""
    others = [admission.enter() for _ in range(2)]
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        response = await search(client, query="my private words")
    assert (response.status_code, response.json()["code"]) == (429, Overloaded.code)
    assert int(response.headers["retry-after"]) >= 1
    assert metrics.seen == [("overloaded", "searches")]
    (line,) = [record.getMessage() for record in caplog.records]
    assert json.loads(line)["error"] == Overloaded.code
    assert "private" not in line
    for path, code in (("search_memory", 429), ("read_memory", 422)):
        assert (await client.post(f"/v1/{path}", json={"wrong": 1})).status_code == code
    admission.leave(others[0], whole=True)
    assert (await search(client)).status_code == 200


async def test_a_search_gives_its_place_back_however_it_ends(
    client: httpx.AsyncClient, admission: Admission, service: FakeService
) -> None:
    admission.enter()
    for error in (RecallFailed("Down."), RuntimeError("Broken."), None):
        service.error = error
        await search(client)
    service.gate, service.waiting = asyncio.Event(), 1
    given_up = asyncio.create_task(search(client))
    await service.full.wait()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    service.gate = None
    assert (await search(client)).status_code == 200


async def test_over_a_limit_it_is_429_with_the_time_to_come_again(
    client: httpx.AsyncClient, service: FakeService, limits: FakeLimits
) -> None:
    """Before the body is read; with a code of its own, for it is not the service that is full."""
    limits.error = RateLimited("The limit of this account on requests a second is reached.", retry_after=12.3)
    response = await client.post("/v1/search_memory", content=b"no JSON")
    body = response.json()
    assert (response.status_code, body["code"], body["retryable"]) == (429, "RET-4292", True)
    assert response.headers["retry-after"] == "13"


async def test_a_request_counts_against_its_account_until_it_is_answered(
    client: httpx.AsyncClient, service: FakeService, limits: FakeLimits
) -> None:
    service.gate = asyncio.Event()
    waiting = [asyncio.create_task(search(client)) for _ in range(2)]
    await service.full.wait()
    assert limits.running == ["acme", "acme"]
    service.gate.set()
    service.error = RuntimeError("Broken.")
    assert [r.status_code for r in await asyncio.gather(*waiting)] == [500, 500]
    assert not limits.running


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "missing"),
        ("Bearer strata_0_0", "key_unknown"),
        ("Bearer é", "key_unknown"),
        ("Bearer a.b.c", "key_unknown"),
    ],
)
async def test_refused_credentials_are_401_and_counted_and_touch_no_limit(
    client: httpx.AsyncClient, metrics: FakeMetrics, limits: FakeLimits, header: str, reason: str
) -> None:
    limits.error = AssertionError("Nobody is known yet.")
    response = await client.post("/v1/search_memory", headers={"Authorization": header.encode("latin-1")})
    assert (response.status_code, response.json()["code"]) == (401, "RET-4011")
    assert metrics.seen == [("unauthenticated", reason)]


async def test_a_long_body_is_413_even_without_a_content_length(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 200

    response = await client.post("/v1/search_memory", content=chunks())
    assert (response.status_code, response.json()["code"]) == (413, "RET-4130")


async def test_a_body_that_trickles_gives_its_place_up_when_its_time_is_over(
    client: httpx.AsyncClient, limits: FakeLimits
) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    slow = [client.post("/v1/search_memory", content=trickle()) for _ in range(2)]
    for response in await asyncio.gather(*slow):
        body = response.json()
        assert (response.status_code, body["code"], body["retryable"]) == (408, "RET-4080", True)
        assert response.headers["connection"] == "close"
    assert not limits.running
    assert (await search(client)).status_code == 200


async def test_a_client_that_hangs_up_in_its_body_is_one_line_and_no_failure(
    client: httpx.AsyncClient, limits: FakeLimits, caplog: pytest.LogCaptureFixture
) -> None:
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        """To nobody."""

    headers = [(b"authorization", client.headers["authorization"].encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/search_memory", "headers": headers, "query_string": b""}
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        await client._transport.app(scope, receive, send)  # type: ignore[attr-defined]
    (line,) = [record.getMessage() for record in caplog.records]
    assert json.loads(line)["error"] == "abandoned"
    assert not limits.running


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "ü"])
async def test_a_request_id_unfit_for_logs_is_replaced(client: httpx.AsyncClient, given: str) -> None:
    response = await client.post(
        "/v1/search_memory", json={"query": "x"}, headers={"x-request-id": given.encode("latin-1")}
    )
    assert response.json()["request_id"] not in {given, ""}


async def test_not_ready_is_503_and_says_why(client: httpx.AsyncClient) -> None:
    response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["reason"] == "The index is empty."


async def test_a_search_is_counted_by_outcome_with_drops_and_filtered_hits(
    client: httpx.AsyncClient, service: FakeService, metrics: FakeMetrics
) -> None:
    """C41."""
    await search(client)
    assert metrics.seen == [("search", "ok"), ("filtered", 3), ("dropped", "gone", 2)]
    service.degraded = (Degradation("embedder", "RET-5041: late", 1),)
    await search(client)
    assert metrics.seen[3] == ("search", "degraded")
    service.error = RecallFailed("Down.")
    await search(client)
    assert metrics.seen[-1] == ("search", "RET-5001")


async def test_the_log_line_has_the_fields_of_c42_and_never_the_query(
    client: httpx.AsyncClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        await search(client, query="my private words")
    (line,) = [record.getMessage() for record in caplog.records if "query_hash" in record.getMessage()]
    entry = json.loads(line)
    assert entry["effective_owner_spaces"] == ["shared", "user:alice"]
    assert entry["recheck_drop_reasons"] == {"gone": 2}
    assert entry["account_id"] == "acme"
    assert entry["query_hash"] == query_hash("acme", "my private words") != query_hash("rival", "my private words")
    assert "private" not in caplog.text


def test_every_error_of_the_tree_has_a_declared_status_and_headers() -> None:
    """The OpenAPI declares what can come."""
    routes = document(section(), gateway.section())["paths"].values()
    declared = {
        status: answer for route in routes for each in route.values() for status, answer in each["responses"].items()
    }
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, StrataError)]
    assert len(kinds) > 15
    for kind in kinds:
        response = error_response(kind("Wrong.", field="f", remedy="Mend it.", stage="s"), "r1")
        assert str(response.status_code) in declared
        body = json.loads(bytes(response.body))
        assert body.keys() == set(ErrorBody.__struct_fields__)
        assert body["code"] == kind.code
        headers = declared[str(response.status_code)].get("headers", {})
        assert {name.lower() for name in headers} == {*response.headers} & {"retry-after", "www-authenticate"}


def test_everything_that_the_openapi_refers_to_is_in_it() -> None:
    whole = document(section(), gateway.section())
    text, components = json.dumps(whole), whole["components"]
    for kind in ("schemas", "headers"):
        wanted = {part.split('"')[0] for part in text.split(f"#/components/{kind}/")[1:]}
        assert wanted
        assert wanted <= components[kind].keys()
