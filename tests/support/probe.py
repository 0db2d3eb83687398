"""A stage that does as it is told, and says what it has lived through."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, TargetForbidden
from deployments.stages.base import StageReplica

CTX = RequestContext("acme", request_id="r1")


class Order(msgspec.Struct):
    """What the probe stage shall do."""

    act: str = "answer"
    text: str = ""


class Report(msgspec.Struct):
    """What the probe stage has lived through."""

    account_id: str
    pid: int
    started: int
    cancelled: int
    running: int


_RAISED: dict[str, Callable[[str], BaseException]] = {
    "forbid": lambda _: TargetForbidden("You may not search there.", field="target_uri", remedy="Ask elsewhere."),
    "refuse": lambda _: InvalidFilter("No such field.", field="filter.eq"),
    "break": RuntimeError,
    "time out": TimeoutError,
    "cancel": asyncio.CancelledError,
}


class ProbeStage:
    """A stage that counts what happens to its calls."""

    def __init__(self) -> None:
        self.started = self.cancelled = self.running = 0

    async def __call__(self, ctx: RequestContext, deadline: Deadline, order: Order) -> Report:
        if order.act == "report":
            return self._report(ctx)
        self.started += 1
        self.running += 1
        try:
            match order.act:
                case "hang" | "wait":
                    await self._wait(order)
                case "die" | "die once" | "die once, then hang":
                    self._die(order)
                    if order.act == "die once, then hang":
                        await self._wait(order)
                case "garbage":
                    return "no report"  # type: ignore[return-value]
                case act if act in _RAISED:
                    raise _RAISED[act](order.text)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return self._report(ctx)

    async def _wait(self, order: Order) -> None:
        """For ever, or until the file exists that another process makes."""
        while order.act != "wait" or not os.path.exists(order.text):  # noqa: PTH110, ASYNC110, ASYNC240
            await asyncio.sleep(0.02)

    def _die(self, order: Order) -> None:
        deaths = Path(order.text)
        if order.act == "die" or not deaths.exists():
            with deaths.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

    def _report(self, ctx: RequestContext) -> Report:
        return Report(ctx.account_id, os.getpid(), self.started, self.cancelled, self.running)


class Probe(StageReplica[Order, Report]):
    name = "probe"
    request_type = Order

    async def open(self) -> ProbeStage:  # type: ignore[override]
        return ProbeStage()
