"""A constant load: so many clients, each of which searches again as soon as it is answered."""

import asyncio
import itertools
import time
import uuid
from typing import NamedTuple, Self

import httpx

_QUERIES = itertools.cycle(["spicy noodles", "backup of the index", "run a command", "手冲咖啡", "上线部署的步骤"])


class Answer(NamedTuple):
    """What became of a search."""

    request_id: str
    sent: float
    ended: float
    status: int
    """0: the connection broke."""
    degraded: bool


class SteadyLoad:
    """Searches until it is left.

    Args:
        client: Sends them.
        clients: How many at once.
    """

    def __init__(self, client: httpx.AsyncClient, clients: int) -> None:
        self._client = client
        self._clients = clients
        self._going = True
        self._answered = asyncio.Condition()
        self.answers: list[Answer] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._searches()) for _ in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Wait until that many more have been answered."""
        wanted = len(self.answers) + count
        async with self._answered:
            await self._answered.wait_for(lambda: len(self.answers) >= wanted)

    async def _searches(self) -> None:
        while self._going:
            self.answers.append(await self._search())
            async with self._answered:
                self._answered.notify_all()

    async def _search(self) -> Answer:
        request_id, sent = f"steady-{uuid.uuid4().hex}", time.monotonic()
        body, headers = {"query": next(_QUERIES)}, {"x-request-id": request_id}
        status, degraded = 0, False
        try:
            answer = await self._client.post("/v1/search_memory", json=body, headers=headers)
            status = answer.status_code
            degraded = bool(answer.json().get("degraded"))
        except httpx.TransportError:
            pass
        return Answer(request_id, sent, time.monotonic(), status, degraded)
