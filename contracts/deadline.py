"""One absolute deadline per request (design decision 3)."""

import time

import msgspec


class Deadline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A point in time after which nobody waits for the answer any more.

    Wall-clock, because it crosses machines; their clocks must agree to within a few milliseconds (NTP).

    Args:
        at: Seconds since the epoch.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The deadline ``seconds`` from now."""
        return cls(time.time() + seconds)

    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - time.time())

    def expired(self) -> bool:
        """Whether no time is left."""
        return time.time() >= self.at

    def share(self, budget: float, reserve: float) -> float:
        """Seconds a stage may take: its budget, or what is left once the later stages have their least.

        Args:
            budget: The stage's own budget, seconds.
            reserve: The least that the stages after it need, seconds.
        """
        return max(0.0, min(budget, self.left() - reserve))
