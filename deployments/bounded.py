"""A stage held to its deadline and measured, in a replica or co-located with the ingress."""

import asyncio
import time
from typing import Generic, TypeVar

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageTimeout, StrataError
from contracts.stages import Stage
from deployments.metrics import StageMetrics

In = TypeVar("In")
Out = TypeVar("Out")


class Bounded(Generic[In, Out]):
    """Drops work that comes too late, stops work at its deadline, and counts.

    The caller cancels at the deadline, too; this holds even when the caller is gone.

    Args:
        name: The stage's name.
        stage: The stage itself.
    """

    def __init__(self, name: str, stage: Stage[In, Out]) -> None:
        self._name = name
        self._stage = stage
        self._metrics = StageMetrics(name)

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: In, /) -> Out:
        """Call the stage.

        Raises:
            StageTimeout: The deadline passed.
        """
        started = time.perf_counter()
        try:
            with self._metrics.under_way():
                return await self._call(ctx, deadline, request)
        except StrataError as error:
            self._metrics.error(error.code)
            raise
        except asyncio.CancelledError:
            self._metrics.error("cancelled")
            raise
        except Exception:
            self._metrics.error("unexpected")
            raise
        finally:
            self._metrics.work(time.perf_counter() - started)

    async def _call(self, ctx: RequestContext, deadline: Deadline, request: In) -> Out:
        if deadline.expired():
            raise StageTimeout("The deadline passed before the work began.", stage=self._name)
        try:
            async with asyncio.timeout(deadline.left()) as timer:
                return await self._stage(ctx, deadline, request)
        except TimeoutError:
            if timer.expired():
                raise StageTimeout("The work was not done in time.", stage=self._name) from None
            raise
