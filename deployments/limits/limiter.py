"""The ingress's side of the limits: admits requests by what the wallet holds, and asks the ledger when that is short.

One call is under way at a time and carries everything that is short or to be given back. While the ledger does not
answer, the ingress goes on with what it holds, then with an equal part of each limit; both are a degradation that is
counted. Every half lease it calls anyway: to give back what is idle, and to see whether the ledger is there again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RateLimited, StageFailed, StrataError
from contracts.stages import Stage
from deployments.identity.caller import Caller
from deployments.limits.config import LimitsSettings
from deployments.limits.messages import LeaseReply, LeaseRequest
from deployments.limits.wallet import Resource, Wallet
from deployments.logs import log_unexpected

_MEANINGS: Mapping[Resource, str] = {"rate": "requests a second", "concurrent": "requests at once"}
_NOBODY = RequestContext("")


def unlimited(caller: Caller) -> AbstractAsyncContextManager[None]:
    """In the place of ``Limiter.admitted`` where nothing is limited."""
    return nullcontext()


class Limiter:
    """Holds callers to the limits of their account and their key. Construct it in the event loop that uses it.

    Args:
        settings: The limits.
        ledger: The one ledger, wherever it is.
        ingresses: How many ingresses share the limits, until the ledger tells.
        refused: Told of each refusal, in two words: ``account`` or ``key``, and ``rate`` or ``concurrent``.
        alone: Told of each request that was admitted or refused without the ledger, with an error code.
    """

    def __init__(
        self,
        settings: LimitsSettings,
        ledger: Stage[LeaseRequest, LeaseReply],
        ingresses: int,
        refused: Callable[[str], None],
        alone: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._refused = refused
        self._count_alone = alone
        self._wallet = Wallet(settings, ingresses)
        self._wanted: Counter[str] = Counter()
        self._answered = self._next = asyncio.Event()
        self._calls: asyncio.Task[None] | None = None
        # The code of the error that the last call ended in.
        self._failing = ""
        self._beat = asyncio.create_task(self._renew())

    @asynccontextmanager
    async def admitted(self, caller: Caller) -> AsyncIterator[None]:
        """Put around a request.

        Raises:
            RateLimited: Its account or its key is over a limit.
        """
        names = [f"account:{caller.context.account_id}", f"key:{caller.key}"]
        names = [name for name in names if not self._settings.of(name).unlimited]
        await self._admit(names)
        try:
            yield
        finally:
            for name in names:
                self._wallet.put(name)
            if self._wallet.owes:
                self._call()

    async def close(self) -> None:
        """Stop calling the ledger; who still waits goes on without it."""
        self._failing = StageFailed.code
        self._beat.cancel()
        if self._calls:
            self._calls.cancel()

    async def _admit(self, names: Sequence[str]) -> None:
        wallet = self._wallet
        while short := [name for name in names if not wallet.admits(name)]:
            for name in short:
                if refusal := wallet.refusal(name):
                    raise self._refuse(name, *refusal)
            if self._failing:
                self._count_alone(self._failing)
                for name in short:
                    if what := wallet.missing_alone(name):
                        raise self._refuse(name, what, self._settings.lease_s)
                break
            await self._ask(short)
        for name in names:
            wallet.take(name)

    async def _ask(self, short: Sequence[str]) -> None:
        """Wait for the answer of the call that is under way, if it is about these names, or of the next one."""
        if any(map(self._wallet.asking, short)):
            await self._answered.wait()
            return
        self._wanted.update(short)
        answered = self._next
        self._call()
        await answered.wait()

    def _refuse(self, name: str, what: Resource, wait: float) -> RateLimited:
        kind, _, _ = name.partition(":")
        self._refused(f"{kind}_{what}")
        return RateLimited(
            f"The limit of this {kind} on {_MEANINGS[what]} is reached.",
            remedy="Retry after the time that Retry-After names.",
            retry_after=wait,
        )

    def _call(self) -> None:
        if self._calls is None and not self._failing:
            self._calls = asyncio.create_task(self._run())

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 2)
            self._wallet.renew()
            if self._calls is None:
                self._calls = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Call the ledger until nothing is short and nothing is to be given back, or it fails."""
        wallet = self._wallet
        try:
            while True:
                self._answered, self._next = self._next, asyncio.Event()
                request = wallet.request(self._wanted)
                self._wanted = Counter()
                try:
                    deadline = Deadline.after(self._settings.timeout_ms / 1000)
                    wallet.receive(request, await self._ledger(_NOBODY, deadline, request))
                    self._failing = ""
                except Exception as error:
                    wallet.lost(request)
                    self._failing = error.code if isinstance(error, StrataError) else StrataError.code
                    if self._failing == StrataError.code:
                        log_unexpected(error, "the limits")
                    break
                self._answered.set()
                # Those who waited take their part first; what they leave is given back.
                await asyncio.sleep(0)
                if not (self._wanted or wallet.owes):
                    break
        finally:
            self._calls = None
            self._wanted = Counter()
            self._answered.set()
            self._next.set()
            self._next = asyncio.Event()
