"""Connections to all replicas of a stage: which is taken, and how they come and go; over sockets."""

import asyncio
import gc
import logging
import socket
from typing import Any

import pytest

from deployments.wire import lines as lines_module
from deployments.wire.lines import Lines, Lost
from deployments.wire.listener import Address
from tests.support.waiting import until
from tests.support.wire import (
    HOST,
    FakeFind,
    FakeMute,
    FakeReplica,
    Listen,
    Start,
    die,
    echo,
    give_up,
    hang,
    under_way,
    where,
)


async def test_a_stage_of_which_no_replica_is_known_has_no_line_and_is_looked_for(listen: Listen) -> None:
    find = FakeFind(where(await listen(echo)))
    lines = Lines(find)
    assert lines.best() is None
    await until(lines.best)
    assert find.asked == 1


async def test_new_replicas_are_found_and_gone_ones_dropped_after_their_calls(listen: Listen) -> None:
    let = asyncio.Event()

    async def answer(call: bytes) -> bytes:
        await let.wait()
        return call

    old, new = await listen(answer), await listen(echo)
    find = FakeFind(where(old))
    lines = Lines(find)
    await lines.look()
    before = lines.best()
    assert before
    call = await under_way(before, b"mine")
    find.says = [where(old), where(new)]
    await lines.look()
    assert lines._lines.keys() == {where(old), where(new)}
    assert lines._lines[where(old)] is before
    find.says = [where(new)]
    await lines.look()
    assert lines._lines.keys() == {where(new)}
    assert (before.usable(), call.done(), len(old.guests)) == (False, False, 1)
    let.set()
    assert await call == b"mine"
    await until(lambda: not old.guests)


async def test_a_replica_that_leaves_gets_no_more_calls_and_is_let_go_when_it_has_answered(listen: Listen) -> None:
    let = asyncio.Event()

    async def answer(call: bytes) -> bytes:
        await let.wait()
        return call

    replica = await listen(answer)
    lines = Lines(FakeFind(where(replica)))
    await lines.look()
    line = lines.best()
    assert line
    call = await under_way(line, b"mine")
    await until(lambda: replica.under_way)
    closing = asyncio.create_task(replica.close(60))
    await until(lambda: line.leaving)
    assert lines.best() is None
    let.set()
    assert await call == b"mine"
    await closing


async def test_while_replicas_can_not_be_found_those_known_stay_but_lost_ones_go(listen: Listen) -> None:
    lost, kept = await listen(echo), await listen(echo)
    find = FakeFind(where(lost), where(kept))
    lines = Lines(find)
    await lines.look()
    line, other = lines._lines[where(kept)], lines._lines[where(lost)]
    await die(lost)
    await until(lambda: not other.known)
    find.says = None
    await lines.look()
    assert lines._lines == {where(kept): line}
    assert await line.call(b"x") == b"x"


async def test_a_line_lost_to_a_replica_that_still_listens_is_opened_again(listen: Listen) -> None:
    replica = await listen(echo)
    find = FakeFind(where(replica))
    lines = Lines(find)
    await lines.look()
    lost = lines._lines[where(replica)]
    for guest in replica.guests:
        guest.abort()
    await until(lambda: not lost.known)
    find.says = None
    await lines.look()
    line = lines.best()
    assert line and line is not lost
    assert await line.call(b"x") == b"x"


async def test_the_less_busy_line_is_taken(listen: Listen) -> None:
    lines = Lines(FakeFind(where(await listen(hang)), where(await listen(hang))))
    await lines.look()
    busy, idle = lines._lines.values()
    calls = [await under_way(busy)]
    assert {lines.best() for _ in range(50)} == {idle}
    calls += [await under_way(idle), await under_way(idle)]
    assert {lines.best() for _ in range(50)} == {busy}
    for call in calls:
        await give_up(call)


async def test_a_silent_line_is_avoided_while_there_is_another(start: Start) -> None:
    replicas = FakeReplica(), FakeReplica()
    lines = Lines(FakeFind(*[await start(replica) for replica in replicas]))
    await lines.look()
    silent, other = lines._lines.values()
    await give_up(await under_way(silent))
    call = await under_way(other)
    assert {lines.best() for _ in range(50)} == {other}
    other.leave()
    assert lines.best() is silent
    await give_up(call)


async def test_the_calls_of_a_gone_replica_that_is_silent_are_lost_at_once(start: Start) -> None:
    """A node that dies ends no connection."""
    find = FakeFind(await start(FakeReplica()))
    lines = Lines(find)
    await lines.look()
    line = lines.best()
    assert line
    call = await under_way(line)
    await give_up(await under_way(line))
    find.says = []
    await lines.look()
    with pytest.raises(Lost):
        await call


async def test_who_refuses_a_connection_is_skipped_and_looked_for_again(
    listen: Listen, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_LOOK_S", 0)
    refuses = socket.socket()
    refuses.bind((HOST, 0))
    late, there = Address(*refuses.getsockname(), b""), where(await listen(echo))
    lines = Lines(FakeFind(late, there))
    await lines.look()
    assert lines._lines.keys() == {there}
    assert await start(FakeReplica(), sock=refuses) == late
    await until(lambda: lines.best() and lines._lines.keys() == {there, late})


async def test_who_does_not_let_a_caller_in_is_skipped(
    listen: Listen, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_CONNECT_S", 0.05)
    real, mute = await listen(echo), FakeMute()
    guess = Address(where(real).host, where(real).port, b"a guess")
    lines = Lines(FakeFind(guess, await start(mute)))
    await lines.look()
    assert lines.best() is None
    await mute.gone.wait()


async def test_all_who_look_at_once_share_one_search_that_none_of_them_can_stop(listen: Listen) -> None:
    find = FakeFind(where(await listen(echo)))
    find.let.clear()
    lines = Lines(find)
    looks = [asyncio.create_task(lines.look()) for _ in range(5)]
    await until(lambda: find.asked)
    assert lines.best() is None
    looks[0].cancel()
    await asyncio.wait(looks[:1])
    find.let.set()
    await asyncio.gather(*looks[1:])
    assert (looks[0].cancelled(), find.asked) == (True, 1)
    assert lines.best()


async def test_replicas_are_looked_for_sooner_while_one_is_missing(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_LOOK_S", 1e9)
    monkeypatch.setattr(lines_module, "_LOOK_AGAIN_S", 0)
    replica = await listen(echo)
    find = FakeFind(where(replica), where(await listen(echo)))
    lines = Lines(find)
    await lines.look()
    for _ in range(10):
        assert lines.best()
        await asyncio.sleep(0)
    assert find.asked == 1
    await die(replica)
    await until(lambda: lines.best() and find.asked >= 2)


@pytest.mark.parametrize(
    ("says", "again"),
    [([], False), (None, True), (RuntimeError(), True), ([Address(HOST, 1, b"")], True)],
    ids=["none listens", "can't be said", "fails", "refuses"],
)
async def test_where_none_listens_is_not_asked_again_soon(
    says: Any, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the answer may be another one in a moment."""
    monkeypatch.setattr(lines_module, "_LOOK_S", 1e9)
    monkeypatch.setattr(lines_module, "_LOOK_AGAIN_S", 0)
    find = FakeFind()
    find.says = says
    missed: list[None] = []
    lines = Lines(find, lambda: missed.append(None))
    await lines.look()
    for calls in range(1, 11):
        assert lines.best() is None
        assert len(missed) == calls
        await asyncio.sleep(0)
    assert (find.asked > 1) == again
    await lines.look()


async def test_a_search_that_fails_keeps_what_is_known_and_does_not_stop_the_next(
    listen: Listen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no exception that nobody takes, whose text would go to the log."""
    monkeypatch.setattr(lines_module, "_LOOK_S", 0)
    first, second = where(await listen(echo)), where(await listen(echo))
    find = FakeFind(first)
    lines = Lines(find)
    await lines.look()
    find.says = RuntimeError("secret")
    with caplog.at_level(logging.ERROR):
        assert lines.best()
        await until(lambda: find.asked == 2 and lines._looking is None)
        await asyncio.sleep(0)
        gc.collect()
    assert lines._lines.keys() == {first}
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text
    find.says = [first, second]
    await lines.look()
    assert lines._lines.keys() == {first, second}
