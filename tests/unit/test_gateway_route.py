"""The route of the gateway over a stand-in: whose limits hold, where a request came from, and one line each."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import httpx
import pytest

from contracts.errors import DatabaseDown, RateLimited, StrataError, UpstreamRefused
from deployments.api import Api
from deployments.gateway.api import GatewayRoute
from deployments.identity.caller import Caller
from deployments.settings import ServerSettings
from gateway.requests import SearchMemoriesRequest
from gateway.results import SearchMemoriesResponse
from gateway.upstream import User

BODY = {"user_id": "alice", "user_key": "k", "query": "tea"}


class FakeGateway:
    """Lets everybody in and finds nothing, unless the test says otherwise."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.searching = asyncio.Event()

    async def authenticate(self, request: SearchMemoriesRequest, address: str) -> User:
        self.addresses.append(address)
        return User(request.user_id, "acme", "memory.alice")

    async def search(self, user: User, request: SearchMemoriesRequest, request_id: str) -> SearchMemoriesResponse:
        self.searching.set()
        if self.gate:
            await self.gate.wait()
        if self.error:
            raise self.error
        return SearchMemoriesResponse([])


class FakeMetrics:
    """Remembers outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def under_way(self) -> nullcontext[None]:
        return nullcontext()

    def overloaded(self, reason: str) -> None:
        """Nothing: the route counts its own."""

    def ended(self, request: Any, answer: Any, outcome: str, seconds: float) -> None:
        self.outcomes.append(outcome)


class World:
    """The route, and what it stands on."""

    def __init__(self, address_header: str | None = None) -> None:
        self.gateway, self.metrics = FakeGateway(), FakeMetrics()
        self.callers: list[Caller] = []
        self.limit: Exception | None = None
        parts: Any = (self.gateway, self.metrics)
        api: Any = Api(None, None, self.limited, None, ServerSettings(max_concurrent=1), parts[1])  # type: ignore[arg-type]
        app = api.app(GatewayRoute(parts[0], parts[1], address_header))
        transport = httpx.ASGITransport(app=app, client=("10.0.0.7", 1))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test")

    @asynccontextmanager
    async def limited(self, caller: Caller) -> AsyncIterator[None]:
        self.callers.append(caller)
        if self.limit:
            raise self.limit
        yield

    async def post(self, body: Any = None, **headers: str) -> httpx.Response:
        return await self.http.post("/memories/search", json=body or BODY, headers=headers)


async def test_no_bearer_token_is_needed_and_limits_are_those_of_account_and_user() -> None:
    world = World()
    response = await world.post()
    assert (response.status_code, response.json()) == (200, {"results": []})
    (caller,) = world.callers
    assert (caller.context.account_id, caller.key) == ("acme", "user:alice")
    world.limit = RateLimited("Too often.", retry_after=3)
    limited = await world.post()
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "3")
    assert world.metrics.outcomes == ["ok", "RET-4292"]


@pytest.mark.parametrize(
    ("header", "sent", "address"),
    [
        (None, "1.1.1.1", "10.0.0.7"),
        ("x-forwarded-for", "6.6.6.6, 1.1.1.1", "1.1.1.1"),
        ("x-forwarded-for", "1.1.1.1", "1.1.1.1"),
        ("x-forwarded-for", "", "10.0.0.7"),
    ],
)
async def test_the_address_is_the_connections_or_the_last_that_the_proxy_names(
    header: str | None, sent: str, address: str
) -> None:
    world = World(header)
    await world.post(**{"x-forwarded-for": sent})
    assert world.gateway.addresses == [address]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UpstreamRefused("No.", http_status=418), 418),
        (DatabaseDown("Gone."), 503),
        (RuntimeError("hunter2"), 500),
    ],
)
async def test_an_error_has_its_status_and_one_line(
    error: StrataError, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.gateway.error = error
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        response = await world.post(**{"x-request-id": "r-1"})
    assert (response.status_code, response.json()["request_id"]) == (status, "r-1")
    assert "hunter2" not in response.text + caplog.text
    lines = [json.loads(r.getMessage()) for r in caplog.records if "memories_search" in r.getMessage()]
    assert [(line["request_id"], line["outcome"]) for line in lines] == [("r-1", response.json()["code"])]


async def test_beyond_the_room_of_the_ingress_it_is_429_before_anything_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.gateway.gate = asyncio.Event()
    waiting = asyncio.create_task(world.post())
    await world.gateway.searching.wait()
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        response = await world.post()
    assert (response.status_code, response.json()["code"]) == (429, "RET-4291")
    assert len([record for record in caplog.records if "RET-4291" in record.getMessage()]) == 1
    world.gateway.gate.set()
    assert (await waiting).status_code == 200
    assert (await world.post()).status_code == 200
