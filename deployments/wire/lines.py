"""A caller's end of the wire."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import count
from math import inf
from typing import Any

from deployments.wire.frames import Kind, Peer, fits
from deployments.wire.listener import Address

logger = logging.getLogger("ray.serve")

# Longest wait for a connection.
_CONNECT_S = 2.0
# How often replicas are looked for: what a new one waits for its first call at most; and while one is missing.
_LOOK_S = 5.0
_LOOK_AGAIN_S = 0.25


class LineError(Exception):
    """Why a call has no reply."""


class Lost(LineError):
    """The connection ended, most likely with the replica."""


class Refused(LineError):
    """The replica has no place for one more call."""


class TooLarge(LineError):
    """The wire does not take a call of that size."""


class Stopped(LineError):
    """The replica stopped the work by itself."""


_ENDS = {Kind.REFUSED: Refused, Kind.CANCELLED: Stopped, Kind.FAILED: Stopped}


class Line(Peer):
    """A connection to one replica; made by :meth:`open`.

    Args:
        address: Its end.
    """

    def __init__(self, address: Address) -> None:
        super().__init__()
        # Nothing came from there since a call was given up.
        self.silent = False
        # It takes no more calls.
        self.leaving = False
        self._address = address
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, address: Address, tls: ssl.SSLContext | None = None) -> "Line":
        """Connect, by TLS where it is given.

        Raises:
            OSError: Nobody listens there, or whoever does has no certificate for it.
            TimeoutError: Whoever listens there does not answer.
            Lost: Or does not know the token.
        """
        made = cls(address)
        async with asyncio.timeout(_CONNECT_S):
            name = address.host if tls else None
            await asyncio.get_running_loop().create_connection(
                lambda: made, address.host, address.port, ssl=tls, server_hostname=name
            )
            try:
                await made._welcome
            except BaseException:
                made.abort()
                raise
        return made

    @property
    def load(self) -> int:
        """Calls under way."""
        return len(self._calls)

    def usable(self) -> bool:
        """Calls can be made."""
        return self.known and self.reads and not self.leaving

    async def call(self, payload: bytes) -> bytes:
        """Make a call. Cancelled, it stops the work at the other end.

        Raises:
            LineError: There is no reply.
        """
        if not self.known:
            raise Lost
        if not fits(payload):
            raise TooLarge
        number = next(self._numbers)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[number] = reply
        self.send(Kind.CALL, number, payload)
        try:
            return await reply
        except asyncio.CancelledError:
            if reply.cancelled():  # Else its end came at the same moment, and nothing more will.
                self.silent = True
                self.send(Kind.CANCEL, number)
            raise
        finally:
            self._ended(number)

    def leave(self) -> None:
        """Make no more calls, and end the connection with the last one; at once where nothing is heard any more."""
        self.leaving = True
        if self.silent:
            self.abort()
        self._ended(0)

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        """Take a frame of the replica."""
        self.silent = False
        reply = self._calls.get(number)
        match kind:
            case Kind.HELLO if not self._welcome.done():
                self.known = True
                self._welcome.set_result(None)
            case Kind.LEAVING:
                self.leave()
            case _ if reply is None or reply.done():
                pass  # It was given up meanwhile.
            case Kind.REPLY:
                reply.set_result(body)
            case _:
                reply.set_exception(_ENDS[kind]())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        self.send(Kind.HELLO, body=self._address.token)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come."""
        self.known, self.leaving = False, True
        waiting: list[asyncio.Future[Any]] = [self._welcome, *self._calls.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(Lost())

    def _ended(self, number: int) -> None:
        self._calls.pop(number, None)
        if self.leaving and not self._calls:
            self.close()


class Lines:
    """Connections to all replicas of a stage.

    Args:
        find: Says where replicas listen, as far as they do; ``None`` when it can't be said now.
        missed: Told of each call that finds none.
        tls: With it nothing goes in the clear.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[Iterable[Address] | None]],
        missed: Callable[[], None] = lambda: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._find = find
        self._missed = missed
        self._tls = tls
        self._lines: dict[Address, Line] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looked, self._pause = -inf, _LOOK_S

    def best(self) -> Line | None:
        """The less busy of two taken at random (Mitzenmacher, The power of two choices, 2001).

        Returns:
            ``None`` while there is none; it is looked for one meanwhile.
        """
        usable = [line for line in self._lines.values() if line.usable()]
        pause = self._pause if len(usable) == len(self._lines) else _LOOK_AGAIN_S
        if time.monotonic() - self._looked >= pause:
            self._look_soon()
        if not usable:
            self._missed()
            return None
        heard = [line for line in usable if not line.silent] or usable
        return min(random.sample(heard, min(2, len(heard))), key=lambda line: line.load)

    async def look(self) -> None:
        """Find the replicas there are now, and connect."""
        await asyncio.shield(self._look_soon())

    def _look_soon(self) -> asyncio.Task[None]:
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        try:
            try:
                found = await self._find()
            except Exception as error:
                logger.error("Replicas can't be found: %s", type(error).__name__)
                found = None
            addresses = set(self._lines if found is None else found)
            for address, line in tuple(self._lines.items()):
                if address not in addresses or not line.known:
                    del self._lines[address]
                    line.leave()
            await asyncio.gather(*(self._open(address) for address in addresses - self._lines.keys()))
            self._pause = _LOOK_AGAIN_S if found is None or len(self._lines) < len(addresses) else _LOOK_S
        finally:
            self._looked, self._looking = time.monotonic(), None

    async def _open(self, address: Address) -> None:
        with suppress(OSError, TimeoutError, Lost):
            self._lines[address] = await Line.open(address, self._tls)
