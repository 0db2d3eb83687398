"""A stub of an upstream memory service, behind a real HTTP server, that records what it got."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.config import HttpUpstreamConfig
from tests.support.http_server import serving

PATH = HttpUpstreamConfig().path
ARRAYS = ("episodes", "profiles", "agent_cases", "agent_skills", "unprocessed_messages")


class MemoryService:
    """The stub.

    It gives what the test put into ``data``, or into ``owners`` for the owner that is asked for, held to the session
    condition of the request, so that a scope finds what is its own. ``status`` and ``body`` replace the answer;
    ``gate`` holds it back, that of ``slow_sessions`` alone where there are some.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.data: dict[str, list[dict[str, Any]]] = {}
        self.owners: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.status = 200
        self.body: bytes | None = None
        self.gate: asyncio.Event | None = None
        self.slow_sessions: set[str] = set()
        self.url = ""

    async def search(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        session = session_condition(body.get("filters"))
        if self.gate and (not self.slow_sessions or self.slow_sessions & set(session or ())):
            await self.gate.wait()
        data = self.owners.get(body.get("user_id") or body["agent_id"], {}) if self.owners else self.data
        found = {
            name: [item for item in data.get(name, []) if session is None or item.get("session_id") in session]
            for name in ARRAYS
        }
        answer = self.body if self.body is not None else json.dumps({"request_id": "u-1", "data": found}).encode()
        return Response(answer, self.status, media_type="application/json")


def session_condition(filters: Any) -> list[str] | None:
    """The sessions that the scope's part of ``filters`` names; ``None`` without one."""
    match filters:
        case {"AND": [_, {"session_id": condition}]} | {"session_id": condition}:
            return condition["in"] if isinstance(condition, dict) else [condition]
    return None


@asynccontextmanager
async def memory_service() -> AsyncIterator[MemoryService]:
    """A stub that is served; its ``url`` says where."""
    stub = MemoryService()
    async with serving(Starlette(routes=[Route(PATH, stub.search, methods=["POST"])])) as stub.url:
        yield stub
        if stub.gate:
            stub.gate.set()


def episode(name: str, session: str | None = None, score: float = 0.5, **fields: Any) -> dict[str, Any]:
    """An episode as such a service gives it."""
    return {"id": name, "session_id": session, "episode": f"text of {name}", "score": score, **fields}
