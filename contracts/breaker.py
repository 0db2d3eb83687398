"""A circuit breaker: after failures in a row, calls are refused at once instead of each waiting for a time-out."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]


class CircuitOpen(Exception):
    """The call was not made: those before it failed, and it is too early to try again."""


class Breaker:
    """Guards calls to something that may be down.

    Closed, every call goes through. Open, none does. Half open, once the pause is over, exactly one does to see: it
    closes the breaker or opens it again. Belongs to one event loop.

    Args:
        failures: Failed calls in a row that open it, at least 1.
        pause: Seconds that it stays open.
        counts: Whether an error means that the other side is down. If not, it is an answer, as good as success;
            ``None`` says that it tells nothing, as a cancelled call does.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        failures: int,
        pause: float,
        counts: Callable[[Exception], bool | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._pause = pause
        self._counts = counts
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Where it stands now."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock() < self._open_until else "half_open"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Put around one call and nothing else.

        A call that is cancelled tells nothing. So a deadline that shall count belongs inside, where its
        ``TimeoutError`` is seen: ``with breaker.guard(): async with asyncio.timeout(...): ...``

        Raises:
            CircuitOpen: The call may not be made now.
        """
        state = self.state
        if state == "open" or (state == "half_open" and self._probing):
            raise CircuitOpen
        probe = self._probing = state == "half_open"
        try:
            yield
        except Exception as error:
            if (failed := self._counts(error)) is not None:
                self._settle(probe, failed=failed)
            raise
        else:
            self._settle(probe, failed=False)
        finally:
            if probe:
                self._probing = False

    def _settle(self, probe: bool, *, failed: bool) -> None:
        if self._open_until is not None and not probe:
            return  # Begun before it opened, and older than what the probe will tell.
        self._failures = self._failures + 1 if failed else 0
        self._open_until = self._clock() + self._pause if self._failures >= self._limit else None
