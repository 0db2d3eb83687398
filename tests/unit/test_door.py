"""The ingress's own door: answers, cancels what nobody waits for, and closes after what it has begun."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.errors import ConfigError
from deployments.door import Door
from deployments.lifecycle import free_port
from tests.support.waiting import until

HOST = "127.0.0.1"


class Works:
    """An app that answers with the body once it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.begun = self.cancelled = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.begun += 1
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Door]]:
    doors: list[Door] = []

    def open_one(app: ASGIApp, port: int) -> Door:
        doors.append(Door(app, HOST, port))
        return doors[-1]

    yield open_one
    for door in doors:
        await door.close()


@asynccontextmanager
async def client(port: int, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", **options) as http:
        yield http


async def test_a_body_of_any_size_arrives_and_the_request_id_comes_back(opened: Callable[..., Door]) -> None:
    app, port, body = Works(), free_port(), b"x" * 1_000_000
    app.let.set()
    opened(app, port)
    async with client(port) as http:
        response = await http.post("/", content=body, headers={"x-request-id": "mine"})
        assert (await http.post("/")).headers["x-request-id"]
    assert response.content == body
    assert response.headers["x-request-id"] == "mine"


async def test_work_ends_when_its_client_hangs_up(opened: Callable[..., Door]) -> None:
    app, port = Works(), free_port()
    opened(app, port)
    async with client(port) as http:
        asking = asyncio.create_task(http.post("/", content=b"?"))
        await until(lambda: app.begun == 1)
        asking.cancel()
        await until(lambda: app.cancelled == 1)


async def test_a_door_that_closes_answers_first_what_it_has_begun(opened: Callable[..., Door]) -> None:
    """And one that takes its place listens already."""
    app, port = Works(), free_port()
    old = opened(app, port)
    async with client(port) as http, client(port, timeout=5) as other:
        asking = asyncio.create_task(http.post("/", content=b"?"))
        await until(lambda: app.begun == 1)
        new = Works()
        new.let.set()
        opened(new, port)
        closing = asyncio.create_task(old.close())
        await until(lambda: old._server.servers == [] or not any(s.is_serving() for s in old._server.servers))
        assert (await other.post("/", content=b"!")).content == b"!"
        app.let.set()
        assert (await asking).content == b"?"
        await closing
    assert app.cancelled == 0


async def test_a_port_that_somebody_else_has_is_named(opened: Callable[..., Door]) -> None:
    server = await asyncio.start_server(lambda *_: None, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConfigError, match=str(port)) as error:
            opened(Works(), port)
    assert error.value.field == "server.direct_port"
