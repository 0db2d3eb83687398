"""How many searches an ingress takes at once: as many as keep to a target of latency. Pure, with a clock from outside.

The rule is that of Swift for packets under way (Kumar et al., *Swift: Delay is Simple and Effective for Congestion
Control in the Datacenter*, SIGCOMM 2020, algorithm 1): a round of answers within the target adds a little, an answer
over it takes places away, the more the further it is over, and at most once a round. A round is the time of a search:
only one that began after the last cut can call for the next, for those before it say nothing of what the cut has done.

Only a limit in use learns. While less than half of the places are taken, a slow search is slow by itself, and a quick
one does not say what more of them would do.

Ingresses in front of the same stages need not know of one another: each sees the latency that all of them make, and
such rules lead to equal shares (Chiu and Jain, *Analysis of the Increase and Decrease Algorithms for Congestion
Avoidance in Computer Networks*, 1989). Together they let in ``least`` times their number at least.
"""

import math
import time
from collections.abc import Callable

from contracts.errors import Overloaded
from deployments.limits.config import AdmissionConfig

# Weight of the newest search in the average of what one takes.
_SMOOTHING = 0.1


class Admission:
    """The places of one ingress.

    Args:
        config: The rule's numbers.
        most: Places that there are at most.
        changed: Told how many places there are, now and after each change.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        config: AdmissionConfig,
        most: int,
        changed: Callable[[int], None] = lambda places: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._target = math.inf if config.target_ms is None else config.target_ms / 1000
        self._least, self._most = min(config.least, most), most
        self._changed = changed
        self._clock = clock
        self._places = float(most)
        self._running = 0
        self._cut_at = -math.inf
        self._took = 0.0
        self._outside, self._refused_at = 0.0, clock()
        changed(most)
        if config.target_ms is not None:
            self._resize(config.initial)

    @property
    def places(self) -> int:
        """Searches at once that are let in."""
        return int(self._places)

    def check(self) -> None:
        """Refuse what would find no place, before anything else is done for it.

        Raises:
            Overloaded: There is none.
        """
        if self._running >= self.places:
            raise Overloaded(
                "The service has no room for this search.",
                remedy="Retry after the time that Retry-After names.",
                retry_after=self._retry_after(self._clock()),
            )

    def enter(self) -> float:
        """Take a place, to be given back by :meth:`leave`.

        Returns:
            The moment, which :meth:`leave` asks for.

        Raises:
            Overloaded: There is none.
        """
        self.check()
        self._running += 1
        return self._clock()

    def leave(self, began: float, *, whole: bool) -> None:
        """Give a place back.

        Args:
            began: What :meth:`enter` returned.
            whole: Whether the search was answered, and lacked nothing. One that was not may have been quick because
                it did less: it gives no more places than there were initially.
        """
        now = self._clock()
        took, used = now - began, 2 * self._running >= self._places
        self._running -= 1
        slow = took > self._target
        if whole or slow:
            self._took += _SMOOTHING * (took - self._took)
        if not used:
            return
        if not slow:
            if whole or self._places < self._config.initial:
                self._resize(self._places + self._config.increase / self._places)
        elif began >= self._cut_at:
            excess = self._config.decrease * (took - self._target) / took
            self._resize(self._places * (1 - min(excess, self._config.most_decrease)))
            self._cut_at = now

    def _resize(self, places: float) -> None:
        before = self.places
        self._places = min(max(places, self._least), self._most)
        if self.places != before:
            self._changed(self.places)

    def _retry_after(self, now: float) -> float:
        """Seconds until all are through that came before: those inside, and those refused who will be back.

        Little's law: of ``running`` inside that stay for ``took`` seconds each, ``running / took`` leave a second, and
        so many of the others are let in. Each that is refused is told a later moment, lest all return at once.
        """
        rate, longest = self._running / max(self._took, 1e-3), self._config.max_retry_after_s
        waiting = max(0.0, self._outside - rate * (now - self._refused_at))
        self._outside, self._refused_at = min(waiting + 1, rate * longest), now
        return min(max(1.0, (self._running + self._outside) / rate), longest)
