"""One request's walk through the chain: its deadline, times, degradations and events."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.breaker import BreakerState
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded, RequestError, StageDown, StageError, StageFailed, StageTimeout
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

    def circuit(self, name: str, state: BreakerState) -> None:
        """Nothing."""


class Run:
    """Calls stages for one request and keeps the books.

    Args:
        ctx: Who asks.
        deadline: When the whole answer is due.
        budgets: Budget and reserve by stage.
        observer: Told of each stage and fallback.
        events: Keeps the events of ``thinking_trace``, where one is wanted.
    """

    def __init__(
        self,
        ctx: RequestContext,
        deadline: Deadline,
        budgets: dict[str, StageBudget],
        observer: Observer,
        events: "Events | None",
    ) -> None:
        self.ctx = ctx
        self.trace = Trace()
        self.degraded: list[Degradation] = []
        self._deadline = deadline
        self._budgets = budgets
        self._observer = observer
        self._events = events
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
            answer = await stage(self.ctx, Deadline.after(seconds), request)
        except (Overloaded, StageTimeout, StageDown) as error:
            # A stage without room is like one that is down: the search goes on without its part.
            reason = f"{error.code}: {error.message}"
        except RequestError:
            raise
        except StageError as error:
            reason = f"{failed.code}: {error.message}"
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
        """Note that a stage did less than it should: in the answer, its warnings and the metrics.

        Args:
            stage: The stage.
            reason: Starts with a code and a colon.
            seconds: How long it was waited for.
        """
        self.degraded.append(Degradation(stage, reason, round(seconds * 1000)))
        self.event(stage, "degraded", reason=reason)
        self.warn(f"{stage}: {reason}")
        self._observer.fallback(stage, _code(reason))

    def fall_back(self, stage: str, warning: str) -> None:
        """Note what was done otherwise than asked for, though no stage is at fault: a warning with a code, counted."""
        self.warn(warning)
        self._observer.fallback(stage, _code(warning))

    def warn(self, warning: str) -> None:
        """Add a warning to the trace, once."""
        if warning not in self.trace.warnings:
            self.trace.warnings.append(warning)

    def event(self, stage: str, event: str, **detail: Any) -> None:
        """Note an event, for ``thinking_trace``."""
        self.trace.event_count += 1
        if self._events:
            self._events.add(Event(stage, event, self._elapsed_ms(), detail))

    def thinking(self) -> ThinkingTrace | None:
        """The events kept, where any were wanted (C5)."""
        return self._events.trace(self._elapsed_ms()) if self._events else None

    def finish(self) -> Trace:
        """The trace, with the total."""
        self.trace.total_ms = self._elapsed_ms()
        return self.trace

    def _elapsed_ms(self) -> int:
        return round((time.perf_counter() - self._started) * 1000)

    def _reserve_after(self, name: str) -> float:
        later = STAGES[STAGES.index(name) + 1 :]
        return sum(self._budgets[stage].reserve_ms for stage in later) / 1000

    def _note_time(self, name: str, started: float) -> float:
        elapsed = time.perf_counter() - started
        field = _TRACE_FIELD[name]
        setattr(self.trace, field, getattr(self.trace, field) + round(elapsed * 1000))
        return elapsed


class Events:
    """Events in order, bounded in number and in size.

    Args:
        most: How many.
        most_bytes: As JSON.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._room = most
        self._bytes = most_bytes
        self._kept: list[Event] = []
        self._missing = 0

    def add(self, event: Event) -> None:
        """Keep an event, unless one before it or this one found no room."""
        self._bytes -= len(msgspec.json.encode(event))
        if self._missing or len(self._kept) >= self._room or self._bytes < 0:
            self._missing += 1
        else:
            self._kept.append(event)

    def trace(self, at_ms: int) -> ThinkingTrace:
        """The events; where some are missing, a last one says how many."""
        cut = [Event("chain", "cut", at_ms, {"missing": self._missing})] if self._missing else []
        return ThinkingTrace(self._kept + cut, truncated=bool(cut))


def _code(reason: str) -> str:
    return reason.split(":", 1)[0]
