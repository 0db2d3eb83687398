"""Both ends of the wire, real and stand-ins, for its tests."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

from deployments.wire.frames import Kind, Peer
from deployments.wire.lines import Line
from deployments.wire.listener import Address, Listener
from deployments.wire.places import Places
from tests.support.waiting import until

HOST = "127.0.0.1"
PLACES = Places(8, 8)
Start = Callable[..., Awaitable[Address]]
Listen = Callable[..., Awaitable[Listener]]
Frame = tuple[Kind, int, bytes]


class Collects(Peer):
    """Keeps the frames it takes."""

    def __init__(self, known: bool = True) -> None:
        super().__init__()
        self.known = known
        self.got: list[Frame] = []
        self.gone = asyncio.Event()

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        self.got.append((kind, number, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


class FakeReplica(Peer):
    """Lets callers in, and then says what the test makes it say."""

    def __init__(self) -> None:
        super().__init__()
        self.known = True
        self.got: list[tuple[Kind, int]] = []
        self.gone = asyncio.Event()

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        if kind is Kind.HELLO:
            self.send(Kind.HELLO)
        else:
            self.got.append((kind, number))

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


class FakeMute(FakeReplica):
    """Lets nobody in."""

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        pass


class FakeFind:
    """Says where replicas are, or fails."""

    def __init__(self, *addresses: Address) -> None:
        self.says: Iterable[Address] | Exception | None = addresses
        self.let = asyncio.Event()
        self.let.set()
        self.asked = 0

    async def __call__(self) -> Iterable[Address] | None:
        self.asked += 1
        await self.let.wait()
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts stand-ins, each for one caller."""
    servers, replicas = [], []

    async def start(replica: FakeReplica, **where: Any) -> Address:
        where = where or {"host": HOST, "port": 0}
        servers.append(await asyncio.get_running_loop().create_server(lambda: replica, **where))
        replicas.append(replica)
        return Address(*servers[-1].sockets[0].getsockname(), b"")

    yield start
    for server in servers:
        server.close()
    for replica in replicas:
        replica.abort()


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Opens real ends."""
    opened = []

    async def listen(
        answer: Callable[[bytes], Awaitable[bytes]], places: Places = PLACES, tls: ssl.SSLContext | None = None
    ) -> Listener:
        listener = Listener(answer, places)
        await listener.open(HOST, tls)
        opened.append(listener)
        return listener

    yield listen
    for listener in opened:
        await die(listener)


async def die(listener: Listener) -> None:
    """Go at once."""
    await listener.close(0)
    await until(lambda: not listener.guests)


async def echo(call: bytes) -> bytes:
    return call


async def hang(call: bytes) -> bytes:
    await asyncio.Event().wait()
    return call


def where(listener: Listener) -> Address:
    address = listener.address()
    assert address
    return address


async def under_way(line: Line, payload: bytes = b"") -> asyncio.Task[bytes]:
    """A call that is under way."""
    load = line.load
    call = asyncio.create_task(line.call(payload))
    await until(lambda: line.load > load)
    return call


async def give_up(call: asyncio.Task[bytes]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
