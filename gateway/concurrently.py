"""Several awaitables side by side: the first error ends all of them."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def side_by_side(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results in order.

    Unlike ``asyncio.gather`` it leaves nothing running behind an error, and unlike a task group it raises the error as
    it is.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
