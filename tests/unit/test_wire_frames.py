"""What arrives of what is sent, and what ends a connection; over sockets where one matters."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.wire import frames
from deployments.wire.frames import Kind
from tests.support.waiting import until
from tests.support.wire import HOST, Collects, Frame


class EndsAtOnce(Collects):
    """Wants no second frame."""

    def frame(self, kind: Kind, number: int, body: bytes) -> None:
        super().frame(kind, number, body)
        self.abort()


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written += b"".join(list_of_data)


@pytest.fixture
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Collects, asyncio.StreamWriter]]:
    """One end that collects, and a writer at the other; the parameter makes the first."""
    loop, peer = asyncio.get_running_loop(), request.param()
    async with await loop.create_server(lambda: peer, HOST, 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield peer, writer
        peer.abort()
        writer.close()


def packed(size: int, kind: int, number: int = 0) -> bytes:
    return frames._HEADER.pack(size, kind, number)


def known() -> Collects:
    return Collects(known=True)


def stranger() -> Collects:
    return Collects(known=False)


@given(
    sent=st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(max_size=200))),
    cuts=st.lists(st.integers(0, 2000)),
)
def test_frames_arrive_the_same_wherever_they_are_split(sent: list[Frame], cuts: list[int]) -> None:
    loop = asyncio.new_event_loop()
    try:
        sender, receiver, transport = known(), known(), FakeTransport()
        sender.connection_made(transport)
        for frame in sent:
            sender.send(*frame)
        for start, end in pairwise(sorted({0, *cuts, len(transport.written)})):
            receiver.data_received(transport.written[start:end])
        assert receiver.got == sent
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("ends", "header"),
    [
        (stranger, packed(frames._MAX_STRANGER + 1, Kind.HELLO)),
        (known, packed(1001, Kind.CALL)),
        (known, packed(0, len(Kind))),
        (known, packed(0, 255)),
        (stranger, packed(0, len(Kind))),
    ],
    ids=["longer than a token", "over the limit", "unknown", "last", "a stranger's unknown"],
    indirect=["ends"],
)
async def test_what_nobody_sends_ends_the_connection_before_its_body_comes(
    ends: tuple[Collects, asyncio.StreamWriter], header: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can have memory taken that is not theirs to take."""
    monkeypatch.setattr(frames, "_MAX_BODY", 1000)
    peer, writer = ends
    good = packed(1, Kind.CALL, 7) + b"x"
    writer.write(good + header + good)
    await peer.gone.wait()
    assert peer.got == [(Kind.CALL, 7, b"x")]


@pytest.mark.parametrize(
    ("ends", "size"), [(stranger, frames._MAX_STRANGER), (known, 1000)], ids=["stranger", "known"], indirect=["ends"]
)
async def test_a_frame_may_be_as_large_as_the_limit(
    ends: tuple[Collects, asyncio.StreamWriter], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_MAX_BODY", 1000)
    peer, writer = ends
    writer.write(packed(size, Kind.CALL, 1) + b"x" * size)
    await until(lambda: peer.got)
    assert peer.got == [(Kind.CALL, 1, b"x" * size)]


@pytest.mark.parametrize("ends", [lambda: EndsAtOnce(known=True)], ids=["ends"], indirect=True)
async def test_nothing_is_taken_after_a_frame_that_ended_the_connection(
    ends: tuple[Collects, asyncio.StreamWriter],
) -> None:
    peer, writer = ends
    writer.write(packed(0, Kind.CALL, 1) + packed(0, Kind.CALL, 2))
    await peer.gone.wait()
    assert peer.got == [(Kind.CALL, 1, b"")]


@pytest.mark.parametrize("ends", [known], ids=["ends"], indirect=True)
async def test_a_frame_to_an_end_that_is_gone_goes_nowhere(ends: tuple[Collects, asyncio.StreamWriter]) -> None:
    peer, writer = ends
    writer.write(packed(0, Kind.CALL, 1))
    await until(lambda: peer.got)
    writer.transport.abort()
    await peer.gone.wait()
    peer.send(Kind.REPLY, 1, b"x" * 1000)
    peer.close()
