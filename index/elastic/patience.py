"""Patience with a cluster that is busy, or between two masters: for writes, which can wait; searches can't."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from elasticsearch import ApiError, TransportError

from index.elastic.client import unavailable
from index.elastic.config import WriteConfig

T = TypeVar("T")


def delay(config: WriteConfig, attempt: int) -> float:
    """Seconds before a further attempt, counted from 1: exponential, with full jitter.

    Source: M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
    """
    most = min(config.max_backoff_ms, config.backoff_ms * 2 ** (attempt - 1))
    return random.uniform(0, most) / 1000  # noqa: S311 - spreads load, keeps no secret


async def patiently(config: WriteConfig, call: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
    """Call something that changes nothing more when it is done twice, until the cluster can serve.

    Raises:
        ApiError: The request is wrong, or the cluster still refused it at the last attempt.
        TransportError: The cluster was still not reached at the last attempt.
    """
    for attempt in range(1, config.attempts):
        try:
            return await call(*args, **named)
        except (ApiError, TransportError) as error:
            if not unavailable(error):
                raise
        await asyncio.sleep(delay(config, attempt))
    return await call(*args, **named)
