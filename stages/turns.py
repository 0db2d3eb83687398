"""Turns of searches whose work is done in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contracts.deadline import Deadline
from contracts.errors import Overloaded


class Turns:
    """Lets so many be worked on at once; others wait in the order they came.

    Work in one event loop gets no faster for more of it at once: each step of one waits for a step of every other, and
    so does whoever is to be refused.

    Args:
        at_once: How many; ``None`` for all.
    """

    def __init__(self, at_once: int | None) -> None:
        self._free = asyncio.Semaphore(at_once) if at_once else None

    @asynccontextmanager
    async def one(self, deadline: Deadline) -> AsyncIterator[None]:
        """Wait for a turn, and keep it.

        Raises:
            Overloaded: It did not come before the deadline.
        """
        if self._free is None:
            yield
            return
        try:
            async with asyncio.timeout(deadline.left()):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded("The time was over before the turn of this search.", remedy="Retry in a moment.") from None
        try:
            yield
        finally:
            self._free.release()
