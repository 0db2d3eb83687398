"""A stage held to its time, to the shape of its answers, and left alone while it is known to be down."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from contracts.breaker import Breaker, CircuitOpen
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded, RequestError, StageDown, StageFailed, StageTimeout
from contracts.stages import Observer, Stage

In = TypeVar("In")
Out = TypeVar("Out")


class BreakerConfig(BaseModel):
    """When a stage that fails again and again is no longer waited for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures: int = Field(
        5, ge=1, description="Failed calls in a row after which a stage's degradation answers at once."
    )
    open_ms: int = Field(
        1000, ge=1, description="After that long one call is let through to see. Less: sooner back, more waits in vain."
    )
    fair_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="A time-out counts only when the call had this share of the stage's budget, so that callers with "
        "little time can't open the breaker for all.",
    )


class _Hurried(StageTimeout):
    """A time-out after less time than is fair."""


class Guarded(Generic[In, Out]):
    """A stage behind its circuit breaker; a stage itself.

    Failures and time-outs open the breaker. A caller's mistake is an answer. A stage without room sheds load, and that
    it does so at once is all it can do: it tells neither way, as does a time-out after less than a fair share of time.

    Args:
        name: The stage's name.
        stage: The stage.
        budget: Its budget, seconds.
        config: When the breaker opens, and for how long.
        observer: Told where the breaker stands.
        fits: Whether an answer has the shape that its request asks for; one that has not is a failure.
    """

    def __init__(
        self,
        name: str,
        stage: Stage[In, Out],
        budget: float,
        config: BreakerConfig,
        observer: Observer,
        fits: Callable[[In, Out], bool],
    ) -> None:
        self._name = name
        self._stage = stage
        self._fair = budget * config.fair_share
        self._observer = observer
        self._fits = fits
        self._breaker = Breaker(config.failures, config.open_ms / 1000, _down)
        self._told = self._breaker.state
        observer.circuit(name, self._told)

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: In, /) -> Out:
        """Call the stage.

        Raises:
            StageTimeout: The deadline passed; the work was cancelled.
            StageDown: The breaker is open.
            StageFailed: The answer has the wrong shape.
            StrataError: What the stage raised.
        """
        if deadline.expired():
            raise StageTimeout("No time was left for the stage.", stage=self._name)
        try:
            with self._breaker.guard():
                return await self._within(deadline.left(), ctx, deadline, request)
        except CircuitOpen:
            raise StageDown(
                "The stage failed too often just now and was not asked (circuit open).", stage=self._name
            ) from None
        finally:
            if self._told != (state := self._breaker.state):
                self._told = state
                self._observer.circuit(self._name, state)

    async def _within(self, seconds: float, ctx: RequestContext, deadline: Deadline, request: In) -> Out:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._stage(ctx, deadline, request)
        except (TimeoutError, StageTimeout):
            late = StageTimeout if seconds >= self._fair else _Hurried
            raise late(f"The stage did not answer within {seconds * 1000:.0f} ms.", stage=self._name) from None
        if not self._fits(request, answer):
            raise StageFailed("The stage answered something else than it should.", stage=self._name)
        return answer


def _down(error: Exception) -> bool | None:
    if isinstance(error, _Hurried | Overloaded):
        return None
    return not isinstance(error, RequestError)
