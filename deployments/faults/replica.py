"""Faults on demand, for tests and ``strata faults``: stages that fail as they are told to.

Only a graph that was built with ``variant=faulty`` has them. No setting and no request can turn them on.
"""

import asyncio
import os
import signal
from abc import ABCMeta
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from ray.serve.handle import DeploymentHandle

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.stages import Stage
from deployments.faults.matrix import Fault
from deployments.stages.base import StageReplica
from deployments.transport import connect, lines_to
from deployments.wire.places import Places

# Long enough that only a cancellation ends it.
_MINUTE = 60.0
# A call that takes a place until it is cancelled.
_HOLD = b"hold"
# 0xc1 is the one byte that MessagePack never uses.
_GARBAGE = b"\x00\xc1 no msgpack"


class Faulty(StageReplica[Any, Any]):
    """A replica whose stage fails; comes before the stage's own class among the bases."""

    _fault: Fault | None = None
    _ms = 0
    _stuck = 0

    async def open(self, *args: Any, **kwargs: Any) -> Stage[Any, Any]:
        """The stage, failing on demand, inside everything that guards it."""
        stage = await super().open(*args, **kwargs)  # type: ignore[safe-super]  # the stage's own class follows

        async def failing(ctx: RequestContext, deadline: Deadline, request: Any) -> Any:
            await self._fail()
            return await stage(ctx, deadline, request)

        return failing

    async def __call__(self, payload: bytes) -> bytes:
        """Answer one call of the transport."""
        if payload == _HOLD:
            await self._hang(asyncio.Event().wait())
        reply = await super().__call__(payload)
        return _GARBAGE if self._fault == "garbage" else reply

    async def inject(self, fault: Fault | None, ms: int = 0) -> None:
        """Fail from now on.

        Args:
            fault: How; ``None`` for no more.
            ms: How slow is slow.
        """
        self._fault, self._ms = fault, ms

    async def stuck(self) -> int:
        """Calls that hang now."""
        return self._stuck

    async def taken(self) -> int:
        """Places that are taken now."""
        return self._listener.under_way if self._listener else 0

    async def _fail(self) -> None:
        match self._fault:
            case "raises":
                raise RuntimeError("told to fail")
            case "hangs":
                await self._hang(asyncio.sleep(_MINUTE))
            case "slow":
                await asyncio.sleep(self._ms / 1000)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)

    async def _hang(self, endless: Awaitable[object]) -> None:
        self._stuck += 1
        try:
            await endless
        finally:
            self._stuck -= 1


def faulty(kind: type[StageReplica[Any, Any]]) -> type[StageReplica[Any, Any]]:
    """The deployment class of a stage with faults on demand."""
    return cast("type[StageReplica[Any, Any]]", ABCMeta(kind.__name__, (Faulty, kind), {}))


class Switches:
    """Tells the stages of a running graph to fail, each of one replica. Construct it in the loop that uses it.

    Args:
        app: The Serve application.
        stages: Its stages.
    """

    def __init__(self, app: str, stages: Iterable[str]) -> None:
        self._handles = {stage: connect(DeploymentHandle(stage, app)) for stage in stages}

    @asynccontextmanager
    async def fault(
        self, stage: str, fault: Fault, *, ms: int = 0, places: Places | None = None
    ) -> AsyncIterator[None]:
        """Within the block the stage fails. A killed one has come back without the fault, or will.

        Args:
            stage: Which.
            fault: How.
            ms: How slow is slow.
            places: Of the stage, for ``queue full``.
        """
        inject = self._handles[stage].options(method_name="inject")
        if fault == "queue full" and places:
            async with self._full(stage, places):
                yield
            return
        await inject.remote(fault, ms)
        try:
            yield
        finally:
            if fault != "killed":
                await inject.remote(None)

    async def stuck(self, stage: str) -> int:
        """Calls that hang in a stage now; it must have room for one more."""
        return cast(int, await self._handles[stage].options(method_name="stuck").remote())

    @asynccontextmanager
    async def _full(self, stage: str, places: Places) -> AsyncIterator[None]:
        """Take all places of a replica: real calls, so that its own limits are what refuses."""
        lines, taken = lines_to(self._handles[stage]), self._handles[stage].options(method_name="taken")
        await lines.look()
        line = lines.best()
        if line is None:
            raise RuntimeError("The replica does not listen.")
        calls = [asyncio.create_task(line.call(_HOLD)) for _ in range(places.running + places.waiting)]
        try:
            while await taken.remote() < len(calls):  # noqa: ASYNC110 -- in another process
                await asyncio.sleep(0)
            yield
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            line.leave()
