"""Waiting for a condition instead of for a time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` returns something true, itself or awaited; the test's own time-out bounds the wait."""
    while True:
        result = condition()
        if await result if asyncio.iscoroutine(result) else result:
            return
        await asyncio.sleep(0)
