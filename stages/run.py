"""One request's walk through the chain: its deadline, times, degradations and events."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded, RequestError, StageError, StageFailed, StageTimeout
from contracts.stages import Observer, Stage
from contracts.trace import STAGES, Degradation, Event, ThinkingTrace, Trace

In = TypeVar("In")
Out = TypeVar("Out")

_TRACE_FIELD = {
    "planner": "planner_ms",
    "embedder": "embed_ms",
    "seed_search": "seed_ms",
    "expander": "hierarchical_ms",
    "rechecker": "recheck_ms",
    "reranker": "rerank_ms",
    "assembler": "assemble_ms",
}


class StageBudget(BaseModel):
    """Time for one stage, milliseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget_ms: int = Field(ge=1, description="Longest wait; then the degradation answers. C40 asks P95 below it.")
    reserve_ms: int = Field(ge=0, description="Least kept for it while earlier stages run late.")


class Silent:
    """An observer that looks away."""

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        """Nothing."""

    def fallback(self, name: str, code: str) -> None:
        """Nothing."""


class Run:
    """Calls stages for one request and keeps the books.

    Args:
        ctx: Who asks.
        deadline: When the whole answer is due.
        budgets: Budget and reserve by stage.
        observer: Told of each stage and fallback.
        max_events: Events kept for ``thinking_trace``; 0 keeps none.
    """

    def __init__(
        self,
        ctx: RequestContext,
        deadline: Deadline,
        budgets: dict[str, StageBudget],
        observer: Observer,
        max_events: int,
    ) -> None:
        self.ctx = ctx
        self.trace = Trace()
        self.degraded: list[Degradation] = []
        self._deadline = deadline
        self._budgets = budgets
        self._observer = observer
        self._max_events = max_events
        self._events: list[Event] = []
        self._started = time.perf_counter()

    async def stage(
        self,
        name: str,
        stage: Stage[In, Out],
        request: In,
        fallback: Callable[[], Out],
        *,
        failed: type[StageError] = StageFailed,
        count: Callable[[Any], int] = lambda _: 1,
    ) -> Out:
        """The stage's answer, or its degradation's when it fails or its time is up.

        Args:
            name: The stage's name.
            stage: The stage.
            request: Its input.
            fallback: Makes the degradation's answer.
            failed: The error whose code a failure is reported under.
            count: Number of items in an input or output, for the metrics.

        Raises:
            RequestError: The caller is at fault, and gets to know.
        """
        started = time.perf_counter()
        seconds = self._deadline.share(self._budgets[name].budget_ms / 1000, self._reserve_after(name))
        try:
            answer = await _within(seconds, stage, self.ctx, request)
        except Overloaded as error:
            # A stage without room is like one that is down: the search goes on without its part.
            reason = f"{error.code}: {error.message}"
        except RequestError:
            raise
        except TimeoutError:
            reason = f"{StageTimeout.code}: no answer within {seconds * 1000:.0f} ms"
        except StageError as error:
            reason = f"{error.code if type(error) is not StageFailed else failed.code}: {error.message}"
        except Exception as error:
            # Whatever goes wrong costs a part of the answer, never the answer; the error's type is safe to tell.
            reason = f"{failed.code}: {type(error).__name__}"
        else:
            elapsed = self._note_time(name, started)
            self._observer.stage(name, elapsed, count(request), count(answer))
            return answer
        elapsed = self._note_time(name, started)
        self.degrade(name, reason, elapsed)
        return fallback()

    def degrade(self, stage: str, reason: str, seconds: float = 0.0) -> None:
        """Note that a stage did less than it should: in the answer, its warnings and the metrics."""
        self.degraded.append(Degradation(stage, reason, round(seconds * 1000)))
        self.warn(f"{stage}: {reason}")
        self._observer.fallback(stage, reason.split(":", 1)[0])

    def warn(self, warning: str) -> None:
        """Add a warning to the trace, once."""
        if warning not in self.trace.warnings:
            self.trace.warnings.append(warning)

    def event(self, stage: str, event: str, **detail: Any) -> None:
        """Note an event; kept for ``thinking_trace`` up to the cap."""
        self.trace.event_count += 1
        if len(self._events) < self._max_events:
            self._events.append(Event(stage, event, detail))

    def thinking(self) -> ThinkingTrace | None:
        """The events kept, where any were wanted (C5)."""
        if not self._max_events:
            return None
        return ThinkingTrace(self._events, truncated=self.trace.event_count > len(self._events))

    def finish(self) -> Trace:
        """The trace, with the total."""
        self.trace.total_ms = round((time.perf_counter() - self._started) * 1000)
        return self.trace

    def _reserve_after(self, name: str) -> float:
        later = STAGES[STAGES.index(name) + 1 :]
        return sum(self._budgets[stage].reserve_ms for stage in later) / 1000

    def _note_time(self, name: str, started: float) -> float:
        elapsed = time.perf_counter() - started
        field = _TRACE_FIELD[name]
        setattr(self.trace, field, getattr(self.trace, field) + round(elapsed * 1000))
        return elapsed


async def _within(seconds: float, stage: Stage[In, Out], ctx: RequestContext, request: In) -> Out:
    if seconds <= 0:
        raise TimeoutError
    async with asyncio.timeout(seconds):
        return await stage(ctx, Deadline.after(seconds), request)
