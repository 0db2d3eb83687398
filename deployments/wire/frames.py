"""What goes over a connection: frames of a kind, a number and a body.

A connection carries many calls at once, told apart by number. It opens with a HELLO each way: the caller's has the
token that only Serve's own, authenticated calls give away.
"""

import asyncio
from enum import IntEnum
from struct import Struct
from typing import cast

# Size of the body, kind, number.
_HEADER = Struct("<IBQ")
_MAX_BODY = 64 * 2**20
# A stranger may send no more than a token.
_MAX_STRANGER = 64
# Bytes that wait to be sent, from which on a peer counts as one that does not read.
_MAX_UNSENT = 8 * 2**20


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 0
    # From the caller.
    CALL = 1
    CANCEL = 2
    # From the replica: how a call ended, and that it will leave.
    REPLY = 3
    CANCELLED = 4
    FAILED = 5
    REFUSED = 6
    LEAVING = 7


_KINDS = tuple(Kind)


def fits(body: bytes) -> bool:
    """Whether a body may be sent."""
    return len(body) <= _MAX_BODY


class Peer(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.known = False
        self.reads = True

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        """Take a frame of the other end."""
        raise NotImplementedError

    def send(self, kind: Kind, number: int = 0, body: bytes = b"") -> None:
        """Send a frame, whose body :func:`fits`; nothing once the connection is gone."""
        if self._transport and not self._transport.is_closing():
            self._transport.writelines((_HEADER.pack(len(body), kind, number), body))

    def close(self) -> None:
        """End the connection when all is sent."""
        if self._transport:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MAX_UNSENT)

    def pause_writing(self) -> None:
        """Called by the event loop: the other end does not read."""
        self.reads = False

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self.reads = True

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        received, start = self._received, 0
        received += data
        while len(received) - start >= _HEADER.size:
            size, kind, number = _HEADER.unpack_from(received, start)
            if size > (_MAX_BODY if self.known else _MAX_STRANGER) or kind >= len(_KINDS):
                self.abort()
                return
            end = start + _HEADER.size + size
            if len(received) < end:
                break
            body = bytes(memoryview(received)[start + _HEADER.size : end])
            start = end
            self.frame(_KINDS[kind], number, body)
            if self._transport and self._transport.is_closing():
                return
        del received[:start]
