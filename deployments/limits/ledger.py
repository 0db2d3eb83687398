"""The owner of the limits: token buckets and slots, leased to ingress replicas. Pure, with a clock from outside.

What holds over any time and for any interleaving of ingresses, as long as one ledger lives:

- At most ``burst + rate · t`` requests are admitted in any ``t`` seconds. For tokens in the bucket and tokens on lease
  together never exceed ``burst``, and both come out of the same refill. A lease that runs out takes its unused tokens
  with it: nobody knows whether they were spent.
- At most ``concurrent`` requests run at once. A slot counts as taken until its ingress gives it back, or is not heard
  of for three leases: then it is dead.

An ingress stops spending one lease after it *sent* its call, and here three are counted from when the call *came*; so
no two clocks need to agree. A new ledger, after a crash, starts with empty buckets and learns from the first call of
each ingress what is running; until then, what the ingresses still hold of the old one comes on top.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.limits.config import Limit, LimitsSettings
from deployments.limits.messages import Ask, Grant, LeaseReply, LeaseRequest

# While there is plenty, a share is this part of an equal division, so that the others find something, too.
_PART = 4
# Leases that an ingress may be silent for.
_PATIENCE = 3
# When a slot falls free can't be known; look again after so many seconds.
_SLOT_RETRY_S = 0.05
_SWEEP_S = 60.0


class Ledger:
    """All limits.

    Args:
        settings: The limits.
        clock: Seconds that only ever grow.
    """

    def __init__(self, settings: LimitsSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._started = self._swept = clock()
        self._books: dict[str, _Book] = {}
        self._ingresses: dict[str, tuple[int, float]] = {}

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Answer one call of an ingress."""
        now = self._clock()
        patience = _PATIENCE * self._settings.lease_s
        last, _ = self._ingresses.get(request.ingress, (0, 0.0))
        if request.number <= last:
            return LeaseReply((), len(self._ingresses))
        self._ingresses[request.ingress] = request.number, now
        self._ingresses = {name: seen for name, seen in self._ingresses.items() if now - seen[1] <= patience}
        if now - self._swept >= _SWEEP_S:
            self._sweep(now)
        parts = _PART * len(self._ingresses)
        grants = tuple(
            self._book(ask.name, now).lease(request.ingress, ask, parts, now + patience) for ask in request.asks
        )
        return LeaseReply(grants, len(self._ingresses))

    def _book(self, name: str, now: float) -> "_Book":
        book = self._books.get(name)
        if book is None:
            # As if it had been here from the start, empty then.
            book = self._books[name] = _Book(self._settings.of(name), self._started)
        book.advance(now)
        return book

    def _sweep(self, now: float) -> None:
        """Forget the books that say no more than a new one would."""
        self._swept = now
        for name, book in list(self._books.items()):
            book.advance(now)
            full = book.limit.rate_per_s is None or book.level >= book.limit.capacity
            if full and not book.leases:
                del self._books[name]


@dataclass
class _Lease:
    tokens: int
    slots: int
    expires: float


@dataclass
class _Book:
    """One limit: ``level`` tokens in the bucket ``at`` a time, and what is on lease."""

    limit: Limit
    at: float
    level: float = 0.0
    leases: dict[str, _Lease] = field(default_factory=dict)

    def advance(self, now: float) -> None:
        """Refill up to ``now``; a lease narrows the bucket until the moment it runs out, not longer."""
        for ingress, lease in sorted(self.leases.items(), key=lambda item: item[1].expires):
            if lease.expires > now:
                break
            self._refill(lease.expires)
            del self.leases[ingress]
        self._refill(now)

    def _refill(self, now: float) -> None:
        room = self.limit.capacity - sum(lease.tokens for lease in self.leases.values())
        self.level = min(room, self.level + (self.limit.rate_per_s or 0.0) * (now - self.at))
        self.at = now

    def lease(self, ingress: str, ask: Ask, parts: int, expires: float) -> Grant:
        """Take back what ``ingress`` had, and give what it asks for, as far as it goes.

        Args:
            ingress: Who asks.
            ask: For what.
            parts: While there is plenty, a share is one of so many parts of what is left.
            expires: When the lease runs out.
        """
        if old := self.leases.pop(ingress, None):
            self.level += min(ask.unused, old.tokens)
        tokens, token_plenty, token_wait = self._tokens(ask.want, parts)
        slots, slot_plenty, slot_wait = self._slots(ask, parts)
        if tokens or slots:
            self.leases[ingress] = _Lease(tokens, slots, expires)
        return Grant(ask.name, tokens, slots, token_plenty and slot_plenty, max(token_wait, slot_wait))

    def _tokens(self, want: int, parts: int) -> tuple[int, bool, float]:
        """Tokens to lease, whether there is plenty, and the seconds to the next one when they are too few."""
        rate = self.limit.rate_per_s
        if rate is None:
            return 0, True, 0.0
        share = math.floor(self.level / parts)
        tokens = min(math.floor(self.level), max(want, share)) if want else 0
        self.level -= tokens
        return tokens, share > 0, 0.0 if tokens >= want else (1 - self.level) / rate

    def _slots(self, ask: Ask, parts: int) -> tuple[int, bool, float]:
        """The same for slots."""
        most = self.limit.concurrent
        if most is None:
            return 0, True, 0.0
        free = max(0, most - ask.running - sum(lease.slots for lease in self.leases.values()))
        share = free // parts
        more = min(free, max(ask.want, share)) if ask.want else 0
        return ask.running + more, share > 0, 0.0 if more >= ask.want else _SLOT_RETRY_S
