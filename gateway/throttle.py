"""Counts failures by name and says when there were too many, in bounded memory."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable


class Throttle:
    """A sliding window of failures for each name. Belongs to one event loop.

    Args:
        most: Failures a window that a name may have.
        window: Seconds.
        names: Names kept at most; beyond, the one that failed longest ago is forgotten.
        clock: Seconds that only ever grow.
    """

    def __init__(self, most: int, window: float, names: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._window = window
        self._names = names
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, name: str) -> float:
        """Seconds until another try of ``name`` is taken; 0 for now."""
        failures = self._failures.get(name)
        if failures is None or len(failures) < self._most:
            return 0.0
        return max(0.0, failures[0] + self._window - self._clock())

    def fail(self, name: str) -> None:
        """Note a failure."""
        # Only the last ``most`` can be in a window that is full.
        failures = self._failures.setdefault(name, deque(maxlen=self._most))
        failures.append(self._clock())
        self._failures.move_to_end(name)
        if len(self._failures) > self._names:
            self._failures.popitem(last=False)

    def undo(self, name: str) -> None:
        """Take back the latest failure of a name: it was none."""
        if failures := self._failures.get(name):
            failures.pop()

    def forget(self, name: str) -> None:
        """Forget the failures of a name that has succeeded."""
        self._failures.pop(name, None)
