"""A replica's end of the wire."""

import asyncio
import hmac
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from deployments.wire.frames import Kind, Peer, fits
from deployments.wire.places import Places

logger = logging.getLogger("ray.serve")

# How long a stranger has to say who it is.
_HELLO_S = 5.0


@dataclass(frozen=True)
class Address:
    """Where a replica listens.

    Args:
        host: IP address of its node.
        port: Port.
        token: What a caller must show.
    """

    host: str
    port: int
    token: bytes = field(repr=False)


class Listener:
    """Takes calls from :meth:`open` to :meth:`close`.

    Args:
        answer: Answers one call. What it raises the caller does not get to see.
        places: How many calls.
        waits: Put around the wait of a call for its turn.
    """

    def __init__(
        self,
        answer: Callable[[bytes], Awaitable[bytes]],
        places: Places,
        waits: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.places = places
        self.token = secrets.token_bytes(32)
        self.guests: set[_Guest] = set()
        self.under_way = 0  # Calls that a caller waits for.
        self._answer = answer
        self._waits = waits
        self._running = asyncio.Semaphore(places.running)
        self._server: asyncio.Server | None = None

    async def open(self, host: str, tls: ssl.SSLContext | None = None) -> None:
        """Listen at a free port.

        Args:
            host: IP address to listen at.
            tls: With it nothing goes in the clear.
        """
        patience = _HELLO_S if tls else None
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Guest(self), host, 0, ssl=tls, ssl_handshake_timeout=patience
        )

    def address(self) -> Address | None:
        """Where it listens; ``None`` when it does not."""
        if self._server is None:
            return None
        host, port, *_ = self._server.sockets[0].getsockname()
        return Address(host, port, self.token)

    async def close(self, seconds: float) -> None:
        """Send callers elsewhere, and wait until they have their answers.

        Args:
            seconds: How long at most; then what is left is cancelled.
        """
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for guest in self.guests:
            guest.send(Kind.LEAVING)
        if gone := [asyncio.create_task(guest.gone.wait()) for guest in self.guests]:
            await asyncio.wait(gone, timeout=seconds)
        for guest in self.guests:
            guest.abort()

    def full(self) -> bool:
        """There is no place for one more call."""
        return self.under_way >= self.places.running + self.places.waiting

    async def work(self, call: bytes) -> bytes:
        """Answer a call when its turn comes."""
        with self._waits() if self._running.locked() else nullcontext():
            await self._running.acquire()
        try:
            return await self._answer(call)
        finally:
            self._running.release()


class _Guest(Peer):
    """A caller."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self.gone = asyncio.Event()
        self._listener = listener
        self._calls: dict[int, asyncio.Task[bytes]] = {}
        self._impatience = asyncio.get_running_loop().call_later(_HELLO_S, self._mistrust)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._listener.guests.add(self)
        if self._listener.address() is None:  # It closed meanwhile, and does not tell who comes now.
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for its calls any more."""
        self._impatience.cancel()
        self._listener.guests.discard(self)
        for number in tuple(self._calls):
            self._give_up(number)
        self.gone.set()

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        match kind:
            case Kind.HELLO if not self.known and hmac.compare_digest(body, self._listener.token):
                self._impatience.cancel()
                self.known = True
                self.send(Kind.HELLO)
            case Kind.CALL if self.known:
                self._take(number, body)
            case Kind.CANCEL if self.known:
                self._give_up(number)
            case _:
                self._mistrust()

    def _take(self, number: int, body: bytes) -> None:
        if self._listener.full():
            self.send(Kind.REFUSED, number)
            return
        self._listener.under_way += 1
        call = self._calls[number] = asyncio.create_task(self._listener.work(body))
        call.add_done_callback(partial(self._done, number))

    def _give_up(self, number: int) -> None:
        # Its place is free at once, for a call that may lie in the same bytes; its turn when the work has stopped.
        if call := self._forget(number):
            call.cancel()

    def _forget(self, number: int) -> asyncio.Task[bytes] | None:
        if call := self._calls.pop(number, None):
            self._listener.under_way -= 1
        return call

    def _done(self, number: int, call: asyncio.Task[bytes]) -> None:
        self._forget(number)
        # Who gave a call up is told, too: it then knows that this replica lives.
        if call.cancelled():
            self.send(Kind.CANCELLED, number)
        elif error := call.exception():
            logger.error("A call failed: %s", type(error).__name__)
            self.send(Kind.FAILED, number)
        elif not fits(call.result()):
            logger.error("A reply is too large for the wire: %d bytes", len(call.result()))
            self.send(Kind.FAILED, number)
        else:
            self.send(Kind.REPLY, number, call.result())

    def _mistrust(self) -> None:
        logger.warning("A connection that does not know the token was closed.")
        self.abort()
