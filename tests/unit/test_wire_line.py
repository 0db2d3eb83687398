"""A connection to a replica: what a call gets; over sockets."""

import asyncio
import random

import pytest

from deployments.wire import frames
from deployments.wire.frames import Kind
from deployments.wire.lines import Line, LineError, Lines, Lost, Refused, Stopped, TooLarge
from deployments.wire.places import Places
from tests.support.waiting import until
from tests.support.wire import (
    FakeFind,
    FakeReplica,
    Listen,
    Start,
    die,
    give_up,
    hang,
    under_way,
    where,
)


async def test_each_of_many_calls_gets_its_own_reply(listen: Listen) -> None:
    chance = random.Random(1)

    async def answer(call: bytes) -> bytes:
        for _ in range(chance.randrange(50)):
            await asyncio.sleep(0)
        return call[::-1]

    line = await Line.open(where(await listen(answer, Places(20, 200))))
    calls = [b"%d." % number + chance.randbytes(chance.choice((0, 10, 3000, 300_000))) for number in range(150)]
    assert await asyncio.gather(*map(line.call, calls)) == [call[::-1] for call in calls]
    assert line.load == 0


@pytest.mark.parametrize(("places", "end"), [(Places(0, 0), Refused), (Places(1, 0), Stopped)], ids=["full", "fails"])
async def test_a_call_without_a_reply_says_why(places: Places, end: type[LineError], listen: Listen) -> None:
    async def fails(call: bytes) -> bytes:
        raise RuntimeError("secret")

    line = await Line.open(where(await listen(fails, places)))
    with pytest.raises(end) as caught:
        await line.call(b"")
    assert "secret" not in str(caught.value)
    assert line.usable()


async def test_calls_are_lost_with_the_replica_and_so_are_later_ones(listen: Listen) -> None:
    replica = await listen(hang)
    line = await Line.open(where(replica))
    calls = [await under_way(line) for _ in range(3)]
    await until(lambda: replica.under_way == 3)
    await die(replica)
    assert [type(end) for end in await asyncio.gather(*calls, return_exceptions=True)] == [Lost] * 3
    assert (line.load, line.usable()) == (0, False)
    with pytest.raises(Lost):
        await line.call(b"")


async def test_a_late_reply_to_a_call_that_was_given_up_is_ignored_but_heard(start: Start) -> None:
    replica = FakeReplica()
    line = await Line.open(await start(replica))
    await give_up(await under_way(line))
    assert line.silent
    await until(lambda: replica.got == [(Kind.CALL, 1), (Kind.CANCEL, 1)])
    replica.send(Kind.REPLY, 1, b"late")
    await until(lambda: not line.silent)
    call = await under_way(line)
    replica.send(Kind.REPLY, 2, b"in time")
    assert await call == b"in time"
    assert line.load == 0


async def test_who_gives_up_a_call_as_its_reply_comes_does_not_wait_to_hear_more(start: Start) -> None:
    """Nothing comes after that: the line would be avoided for good."""
    replica = FakeReplica()
    line = await Line.open(await start(replica))
    call = await under_way(line)
    line.frame(Kind.REPLY, 1, b"")
    await give_up(call)
    assert not line.silent
    call = await under_way(line)
    await until(lambda: replica.got == [(Kind.CALL, 1), (Kind.CALL, 2)])
    await give_up(call)


async def test_a_line_to_who_does_not_read_is_not_used_until_they_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_MAX_UNSENT", 1000)
    replica = FakeReplica()
    address = await start(replica)
    lines = Lines(FakeFind(address))
    await lines.look()
    line = lines.best()
    assert line and replica._transport
    replica._transport.pause_reading()
    calls = []
    while line.usable():
        calls.append(await under_way(line, b"x" * 2**20))
    assert lines.best() is None
    replica._transport.resume_reading()
    await until(line.usable)
    assert lines.best() is line
    for call in calls:
        await give_up(call)


async def test_a_hello_that_comes_after_the_caller_gave_up_does_nothing(start: Start) -> None:
    line = Line(await start(FakeReplica()))
    line._welcome.cancel()
    line.frame(Kind.HELLO, 0, b"")
    assert not line.known


async def test_what_is_too_large_fails_alone(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(call: bytes) -> bytes:
        return call * 2

    line = await Line.open(where(await listen(answer)))
    other = await under_way(line, b"x")
    monkeypatch.setattr(frames, "_MAX_BODY", 1000)
    with pytest.raises(TooLarge):
        await line.call(bytes(1001))
    with pytest.raises(Stopped):
        await line.call(bytes(501))
    assert await line.call(bytes(500)) == bytes(1000)
    assert await other == b"xx"
