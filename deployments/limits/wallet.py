"""What one ingress holds of the limits: spent without asking, and given back when it is idle. Pure, with a clock.

While a call to the ledger is under way, the shares it speaks of are in the call: nothing of them can be spent.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from deployments.limits.config import Limit, LimitsSettings
from deployments.limits.messages import Ask, LeaseReply, LeaseRequest

Resource = Literal["rate", "concurrent"]


@dataclass(slots=True)
class _Share:
    """Of one limit. ``alone`` is a bucket with an equal part of it, to go by when the ledger can't be asked."""

    limit: Limit
    alone: float
    alone_at: float
    tokens: int = 0
    slots: int = 0
    running: int = 0
    leased: bool = False
    plenty: bool = True
    asking: bool = False
    expires: float = 0.0
    retry_at: float = 0.0


class Wallet:
    """The shares of one ingress.

    Args:
        settings: The limits.
        ingresses: How many share them, until the ledger tells.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self, settings: LimitsSettings, ingresses: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._ingresses = ingresses
        self._clock = clock
        self._name = uuid.uuid4().hex
        self._number, self._sent = 0, 0.0
        self._shares: dict[str, _Share] = {}
        self._returning: set[str] = set()

    @property
    def owes(self) -> bool:
        """Whether something is to be given back."""
        return bool(self._returning)

    def asking(self, name: str) -> bool:
        """Whether a call about ``name`` is under way."""
        return self._share(name).asking

    def admits(self, name: str) -> bool:
        """Whether a request of ``name`` can be admitted without asking."""
        share = self._share(name)
        if share.asking or self._clock() >= share.expires:
            return False
        return self._missing(share) is None

    def missing_alone(self, name: str) -> Resource | None:
        """What is short to admit it by an equal part of the limit, when the ledger can't be asked."""
        share = self._share(name)
        self._refill(share)
        if share.limit.rate_per_s is not None and share.alone < 1:
            return "rate"
        most = share.limit.concurrent
        return "concurrent" if most and share.running >= max(1, most // self._ingresses) else None

    def refusal(self, name: str) -> tuple[Resource, float] | None:
        """What is short and the seconds until it is worth asking again; ``None`` when it is worth it now."""
        share = self._share(name)
        wait = share.retry_at - self._clock()
        missing = self._missing(share)
        return (missing, wait) if missing and wait > 0 and not share.asking else None

    def take(self, name: str) -> None:
        """A request is admitted."""
        share = self._share(name)
        self._refill(share)
        share.alone = max(0.0, share.alone - 1)
        share.tokens = max(0, share.tokens - 1)
        share.running += 1

    def put(self, name: str) -> None:
        """A request is done."""
        share = self._share(name)
        share.running -= 1
        if share.limit.concurrent:
            share.retry_at = 0.0
        if not share.plenty and share.slots > share.running:
            self._returning.add(name)

    def renew(self) -> None:
        """To be called every half lease: give back what lies idle, report what runs, forget the rest."""
        now = self._clock()
        for name, share in list(self._shares.items()):
            if now < share.expires or share.asking:
                continue
            if share.leased or (share.running and share.limit.concurrent):
                self._returning.add(name)
            elif not share.running and self._refill(share):
                del self._shares[name]
                self._returning.discard(name)

    def request(self, wanted: Mapping[str, int]) -> LeaseRequest:
        """The next call to the ledger.

        Args:
            wanted: Requests that wait, by name.
        """
        asks = []
        for name in wanted.keys() | self._returning:
            share = self._share(name)
            asks.append(Ask(name, wanted.get(name, 0), share.tokens, share.running))
            share.asking, share.tokens = True, 0
        self._returning.clear()
        self._number, self._sent = self._number + 1, self._clock()
        return LeaseRequest(self._name, self._number, tuple(asks))

    def receive(self, request: LeaseRequest, reply: LeaseReply) -> None:
        """Put the answer to the last :meth:`request` in."""
        self._ingresses = reply.ingresses
        self.lost(request)
        for grant in reply.grants:
            share = self._share(grant.name)
            share.tokens, share.slots, share.plenty = grant.tokens, grant.slots, grant.plenty
            share.leased = grant.tokens > 0 or grant.slots > 0
            share.expires = self._sent + self._settings.lease_s
            share.retry_at = self._clock() + grant.retry_after
            if not share.plenty and (share.tokens or share.slots > share.running):
                self._returning.add(grant.name)

    def lost(self, request: LeaseRequest) -> None:
        """No answer came to a call."""
        for ask in request.asks:
            share = self._share(ask.name)
            share.asking, share.expires = False, 0.0

    def _share(self, name: str) -> _Share:
        share = self._shares.get(name)
        if share is None:
            limit = self._settings.of(name)
            share = self._shares[name] = _Share(limit, max(1.0, limit.capacity / self._ingresses), self._clock())
        return share

    def _missing(self, share: _Share) -> Resource | None:
        if share.limit.rate_per_s is not None and share.tokens < 1:
            return "rate"
        if share.limit.concurrent is not None and share.running >= share.slots:
            return "concurrent"
        return None

    def _refill(self, share: _Share) -> bool:
        """Refill the bucket of ``share``; whether it is full."""
        now, limit = self._clock(), share.limit
        most = max(1.0, limit.capacity / self._ingresses)
        share.alone = min(most, share.alone + (limit.rate_per_s or 0.0) / self._ingresses * (now - share.alone_at))
        share.alone_at = now
        return limit.rate_per_s is None or share.alone >= most
