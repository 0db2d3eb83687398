"""A replica's end of the wire: who is let in, which calls run, and how it closes; over sockets, frame by frame."""

import asyncio
import gc
import logging
import random
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import pytest

from deployments.wire import listener as listener_module
from deployments.wire.frames import Kind
from deployments.wire.listener import Listener
from deployments.wire.places import Places
from tests.support.waiting import until
from tests.support.wire import HOST, Collects

Listen = Callable[..., Awaitable[Listener]]


class Works:
    """Answers a call with what it says, once that is let."""

    def __init__(self) -> None:
        self.let: dict[bytes, asyncio.Event] = defaultdict(asyncio.Event)
        self.begun: list[bytes] = []
        self.cancelled: list[bytes] = []

    async def __call__(self, call: bytes) -> bytes:
        self.begun.append(call)
        try:
            await self.let[call].wait()
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        return call


class Caller(Collects):
    """Sends what frames it likes, and keeps what comes."""

    def call(self, *numbers: int) -> None:
        """Make calls that say their number."""
        for number in numbers:
            self.send(Kind.CALL, number, b"%d" % number)

    async def end(self, number: int) -> Kind:
        """How a call ended, which it does once."""
        await until(lambda: any(frame[1] == number for frame in self.got))
        [(kind, _, body)] = [frame for frame in self.got if frame[1] == number]
        assert body == (b"%d" % number if kind is Kind.REPLY else b"")
        return kind


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    opened = []

    async def listen(
        answer: Callable[[bytes], Awaitable[bytes]],
        running: int = 8,
        waiting: int = 8,
        waits: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Listener:
        listener = Listener(answer, Places(running, waiting), waits)
        await listener.open(HOST)
        opened.append(listener)
        return listener

    yield listen
    for listener in opened:
        await listener.close(0)
        for guest in listener.guests:
            guest.abort()
        await until(lambda listener=listener: not listener.guests)


async def connect(listener: Listener) -> Caller:
    """Somebody who has not said who they are."""
    address = listener.address()
    assert address
    _, caller = await asyncio.get_running_loop().create_connection(Caller, address.host, address.port)
    return caller


async def join(listener: Listener) -> Caller:
    """Somebody who knows the token."""
    caller = await connect(listener)
    caller.send(Kind.HELLO, body=listener.token)
    await until(lambda: caller.got == [(Kind.HELLO, 0, b"")])
    caller.got.clear()
    return caller


@pytest.mark.parametrize(
    "says",
    [
        [(Kind.HELLO, b"a guess")],
        [(Kind.HELLO, b"x" * 32)],
        [(Kind.CALL, b"1")],
        [(Kind.CANCEL, b"")],
        [(Kind.HELLO, None), (Kind.HELLO, None)],
        [(Kind.HELLO, None), (Kind.REPLY, b"")],
        [(Kind.HELLO, b"a guess"), (Kind.HELLO, None), (Kind.CALL, b"1")],
        [(Kind.CALL, b"1"), (Kind.HELLO, None), (Kind.CALL, b"1")],
        [(Kind.HELLO, None), (Kind.HELLO, None), (Kind.CALL, b"1")],
    ],
    ids=lambda says: ", ".join(f"{kind.name} {'token' if body is None else body.decode()}" for kind, body in says),
)
async def test_who_does_not_begin_with_the_token_or_says_it_twice_is_sent_away(
    says: list[tuple[Kind, bytes | None]], listen: Listen, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is run for them, and the log does not have the token nor what they took for it."""
    listener = await listen(works)
    with caplog.at_level(logging.DEBUG):
        caller = await connect(listener)
        for kind, body in says:
            caller.send(kind, 1, listener.token if body is None else body)
        await caller.gone.wait()
        await until(lambda: not listener.guests)
    assert (works.begun, listener.under_way) == ([], 0)
    assert [record.args for record in caplog.records if record.name == "ray.serve"] == [()]
    for token in (listener.token, b"a guess", b"x" * 32):
        assert repr(token)[2:-1] not in caplog.text and token.hex() not in caplog.text


async def test_who_says_nothing_is_sent_away_after_a_while(
    listen: Listen, works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_HELLO_S", 0.01)
    caller = await connect(await listen(works))
    await caller.gone.wait()
    assert caller.got == []


async def test_who_said_the_token_may_be_silent(listen: Listen, works: Works) -> None:
    listener = await listen(works)
    caller = await join(listener)
    [guest] = listener.guests
    assert guest._impatience.cancelled()
    caller.call(1)
    works.let[b"1"].set()
    assert await caller.end(1) is Kind.REPLY


async def test_calls_run_at_once_then_wait_in_order_then_are_refused(listen: Listen, works: Works) -> None:
    waiting, waited = 0, 0

    @contextmanager
    def waits() -> Iterator[None]:
        nonlocal waiting, waited
        waiting, waited = waiting + 1, waited + 1
        yield
        waiting -= 1

    listener = await listen(works, 2, 3, waits)
    caller, other = await join(listener), await join(listener)
    caller.call(1, 2, 3)
    await until(lambda: waiting == 1)
    other.call(4)
    await until(lambda: waiting == 2)
    caller.call(5, 6)
    assert await caller.end(6) is Kind.REFUSED
    assert (works.begun, waiting, listener.under_way) == ([b"1", b"2"], 3, 5)
    for done, begins in ((2, b"3"), (3, b"4"), (1, b"5")):
        works.let[b"%d" % done].set()
        assert await caller.end(done) is Kind.REPLY
        await until(lambda begins=begins: works.begun[-1] == begins)
    assert (waiting, waited) == (0, 3)
    caller.call(7)
    await until(lambda: waited == 4)
    works.let[b"4"].set()
    assert await other.end(4) is Kind.REPLY
    await until(lambda: works.begun == [b"1", b"2", b"3", b"4", b"5", b"7"])


async def test_a_waiting_call_that_is_cancelled_gives_its_place_free(listen: Listen, works: Works) -> None:
    listener = await listen(works, 1, 1)
    caller = await join(listener)
    caller.call(1, 2, 3)
    assert await caller.end(3) is Kind.REFUSED
    caller.send(Kind.CANCEL, 2)
    assert await caller.end(2) is Kind.CANCELLED
    caller.call(4)
    works.let[b"1"].set()
    works.let[b"4"].set()
    assert (await caller.end(1), await caller.end(4)) == (Kind.REPLY, Kind.REPLY)
    assert works.begun == [b"1", b"4"]


async def test_the_place_of_a_call_given_up_is_free_for_one_that_comes_with_the_same_bytes(
    listen: Listen, works: Works
) -> None:
    listener = await listen(works, 1, 1)
    caller = await join(listener)
    for last in (2, 4, 6):
        caller.call(last - 1, last)
        await until(listener.full)
        caller.send(Kind.CANCEL, last - 1)
        caller.send(Kind.CANCEL, last)
    caller.call(7, 8)
    works.let[b"7"].set()
    works.let[b"8"].set()
    assert (await caller.end(7), await caller.end(8)) == (Kind.REPLY, Kind.REPLY)
    assert listener.under_way == 0


async def test_work_that_does_not_stop_keeps_its_turn(listen: Listen) -> None:
    running, stubborn = [], asyncio.Event()

    async def answer(call: bytes) -> bytes:
        running.append(call)
        while not stubborn.is_set():
            with suppress(asyncio.CancelledError):
                await stubborn.wait()
        return call

    caller = await join(await listen(answer, 1, 2))
    caller.call(1)
    await until(lambda: running == [b"1"])
    caller.send(Kind.CANCEL, 1)
    caller.call(2, 3, 4, 5)
    assert await caller.end(5) is Kind.REFUSED
    assert running == [b"1"]
    stubborn.set()
    assert await caller.end(4) is Kind.REPLY
    assert running == [b"1", b"2", b"3", b"4"]


async def test_cancelling_a_call_stops_its_work_and_no_other(listen: Listen, works: Works) -> None:
    listener = await listen(works)
    caller, other = await join(listener), await join(listener)
    caller.call(1, 2)
    other.call(1)
    await until(lambda: len(works.begun) == 3)
    caller.send(Kind.CANCEL, 1)
    assert await caller.end(1) is Kind.CANCELLED
    assert (works.cancelled, listener.under_way) == ([b"1"], 2)
    works.let[b"1"].set()
    works.let[b"2"].set()
    assert (await caller.end(2), await other.end(1)) == (Kind.REPLY, Kind.REPLY)


async def test_cancelling_a_call_that_has_ended_does_nothing(listen: Listen, works: Works) -> None:
    caller = await join(await listen(works))
    caller.call(1)
    works.let[b"1"].set()
    assert await caller.end(1) is Kind.REPLY
    caller.send(Kind.CANCEL, 1)
    caller.call(2)
    works.let[b"2"].set()
    assert await caller.end(2) is Kind.REPLY


async def test_the_calls_of_a_caller_that_goes_are_cancelled(listen: Listen, works: Works) -> None:
    listener = await listen(works, 1, 1)
    caller, other = await join(listener), await join(listener)
    caller.call(1, 2)
    await until(listener.full)
    caller.abort()
    await until(lambda: works.cancelled == works.begun == [b"1"])
    assert listener.under_way == 0
    other.call(3)
    works.let[b"3"].set()
    assert await other.end(3) is Kind.REPLY


async def test_what_the_answer_raises_is_not_shown(listen: Listen, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(call: bytes) -> bytes:
        raise RuntimeError("secret")

    listener = await listen(fails)
    caller = await join(listener)
    caller.call(1)
    assert await caller.end(1) is Kind.FAILED
    assert listener.under_way == 0
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text


async def test_who_closes_answers_what_has_begun_and_waits_until_callers_are_gone(listen: Listen, works: Works) -> None:
    listener = await listen(works, 1, 1)
    busy, idle = await join(listener), await join(listener)
    busy.call(1, 2)
    await until(listener.full)
    known = listener.address()
    assert known
    closing = asyncio.create_task(listener.close(60))
    await until(lambda: busy.got and idle.got)
    assert busy.got == idle.got == [(Kind.LEAVING, 0, b"")]
    assert listener.address() is None
    with pytest.raises(OSError):
        await asyncio.open_connection(known.host, known.port)
    idle.close()
    works.let[b"1"].set()
    works.let[b"2"].set()
    assert (await busy.end(1), await busy.end(2)) == (Kind.REPLY, Kind.REPLY)
    assert not closing.done()
    busy.close()
    await closing
    assert (works.cancelled, listener.guests) == ([], set())


async def test_a_call_that_hangs_is_cancelled_when_the_time_to_close_is_over(listen: Listen, works: Works) -> None:
    listener = await listen(works, 1, 1)
    caller = await join(listener)
    caller.call(1, 2)
    await until(listener.full)
    await listener.close(0.01)
    await caller.gone.wait()
    await until(lambda: works.cancelled == works.begun == [b"1"])
    assert listener.under_way == 0


async def test_closing_with_no_callers_or_again_returns(listen: Listen, works: Works) -> None:
    listener = await listen(works)
    await listener.close(60)
    await listener.close(60)
    assert listener.address() is None


@pytest.mark.parametrize("turns", range(8))
async def test_who_connects_as_it_closes_is_not_kept(
    turns: int, listen: Listen, works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let in after that, they would never learn that the replica goes."""
    monkeypatch.setattr(listener_module, "_HELLO_S", 1e9)
    listener = await listen(works)
    address = listener.address()
    assert address
    with socket.create_connection((address.host, address.port)) as caller:
        caller.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close(0)

        def ended() -> bool:
            gc.collect()  # asyncio forgets, and does not close, what it accepts in one certain moment.
            try:
                return caller.recv(100) == b""
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        async with asyncio.timeout(20):
            await until(ended)


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_cancelled_calls_leaves_every_place_free(seed: int, listen: Listen, works: Works) -> None:
    """Cancelled before they begin, while they wait, while they run, as they end, and with their caller."""
    chance, calls = random.Random(seed), 300

    async def answer(call: bytes) -> bytes:
        if int(call) > calls:
            return await works(call)
        for _ in range(int(call) % 4):
            await asyncio.sleep(0)
        return call

    async def storm(caller: Caller, leaves: bool) -> Any:
        for number in range(1, calls + 1):
            caller.call(number)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.8:
                caller.send(Kind.CANCEL, chance.randint(max(1, number - 5), number))
            if leaves and chance.random() < 1 / calls:
                break
        if leaves:
            caller.abort()
            return []
        return [await caller.end(number) for number in range(1, calls + 1)]

    listener = await listen(answer, 4, 60)
    callers = [await join(listener) for _ in range(4)]
    ends = await asyncio.gather(*(storm(caller, caller in callers[2:]) for caller in callers))
    assert {Kind.REPLY, Kind.CANCELLED} <= {*ends[0], *ends[1]} <= {Kind.REPLY, Kind.CANCELLED, Kind.REFUSED}
    await until(lambda: listener.under_way == 0)

    last = range(calls + 1, calls + 6)
    callers[0].call(*last)
    await until(lambda: len(works.begun) == 4 and listener.under_way == 5)
    for number in last:
        works.let[b"%d" % number].set()
    assert {await callers[0].end(number) for number in last} == {Kind.REPLY}
    await until(lambda: listener.under_way == 0)
