"""What a stage call does when its replica dies, has no room or takes too long.

By the wire, over sockets, and on a stand-in for Serve's handle.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, Overloaded, StageFailed, StageTimeout, StrataError
from contracts.records import ModelRef
from deployments.transport import call_with_deadline, encode_error, encode_result, lines_to
from deployments.wire.lines import Lines
from deployments.wire.listener import Address, Listener
from deployments.wire.places import Places
from tests.support.waiting import until

CTX = RequestContext("acme", request_id="r1")
MODEL = ModelRef("m", "1", 8)
DECODER = msgspec.msgpack.Decoder(ModelRef)
DEATHS = [ActorDiedError(), ActorUnavailableError("gone", None)]


class FakeResponse:
    """A reply, an error in its place, or what is awaited for one."""

    def __init__(self, outcome: bytes | Exception | Callable[[], Awaitable[bytes]]) -> None:
        self._outcome = outcome
        self.cancelled = False

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> bytes:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome if isinstance(self._outcome, bytes) else await self._outcome()

    def cancel(self) -> None:
        self.cancelled = True


class FakeSaid:
    """What all replicas say."""

    def __init__(self, said: list[Any] | Exception) -> None:
        self._said = said

    async def results_async(self, timeout_s: float, return_exceptions: bool) -> list[Any]:
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


class FakeHandle:
    """Answers each call with the next outcome, and says what its replicas say."""

    deployment_name = "planner"

    def __init__(self, *outcomes: bytes | Exception | Callable[[], Awaitable[bytes]]) -> None:
        self._outcomes = list(outcomes)
        self.payloads: list[bytes] = []
        self.responses: list[FakeResponse] = []
        self.said: list[Any] | Exception = []

    def broadcast(self, method: str) -> FakeSaid:
        assert method == "address"
        return FakeSaid(self.said)

    def remote(self, payload: bytes) -> FakeResponse:
        self.payloads.append(payload)
        self.responses.append(FakeResponse(self._outcomes.pop(0)))
        return self.responses[-1]


async def call(handle: FakeHandle, seconds: float = 60, lines: Lines | None = None) -> ModelRef:
    answer: ModelRef = await call_with_deadline(
        handle,  # type: ignore[arg-type]
        CTX,
        Deadline.after(seconds),
        "x",
        DECODER,
        lines,
    )
    return answer


PLACES = Places(8, 8)
DIES, HANGS = "dies", "hangs"


class Replicas:
    """Replicas of a stage that the wire leads to; each call finds the next outcome, whichever it comes to."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.payloads: list[bytes] = []
        self.cancelled = 0

    async def open(
        self, number: int, *outcomes: bytes | BaseException | str, places: Places = PLACES
    ) -> tuple[Lines, list[Address]]:
        """Start some, and connect."""
        self._outcomes = list(outcomes)
        for index in range(number):
            self.listeners.append(Listener(partial(self._answer, index), places))
            await self.listeners[-1].open("127.0.0.1")
        addresses = [address for listener in self.listeners if (address := listener.address())]

        async def find() -> list[Address]:
            return addresses

        lines = Lines(find)
        await lines.look()
        return lines, addresses

    async def close(self) -> None:
        for listener in self.listeners:
            await listener.close(0)
        await until(lambda: not any(listener.guests for listener in self.listeners))

    async def _answer(self, index: int, payload: bytes) -> bytes:
        self.payloads.append(payload)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, bytes):
            return outcome
        if outcome == DIES:
            for guest in self.listeners[index].guests:
                guest.abort()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1
        raise AssertionError


@pytest.fixture
async def replicas() -> AsyncIterator[Replicas]:
    opened = Replicas()
    yield opened
    await opened.close()


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: type(death).__name__)
async def test_a_call_whose_replica_dies_is_made_once_more(death: Exception) -> None:
    """Issue 9, point 4: stages only read, so that nothing happens twice that may not."""
    handle = FakeHandle(death, encode_result(MODEL))
    assert await call(handle) == MODEL
    first, second = handle.payloads
    assert first == second
    assert all(response.cancelled for response in handle.responses)


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: type(death).__name__)
async def test_a_call_that_dies_twice_fails_and_names_the_stage(death: Exception) -> None:
    handle = FakeHandle(death, death, encode_result(MODEL))
    with pytest.raises(StageFailed) as caught:
        await call(handle)
    assert caught.value.stage == "planner"
    assert len(handle.payloads) == 2


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (BackPressureError(8, 8), Overloaded),
        (DeploymentUnavailableError(None), StageFailed),
        (RuntimeError("secret"), StageFailed),
        (encode_error(InvalidFilter("No such field.")), InvalidFilter),
        (encode_error(StageFailed("The stage failed.")), StageFailed),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_nothing_else_is_made_again(outcome: bytes | Exception, kind: type[StrataError]) -> None:
    """Who has no room gets no more work, and a stage that failed would fail again."""
    handle = FakeHandle(outcome, encode_result(MODEL))
    with pytest.raises(kind) as caught:
        await call(handle)
    assert "secret" not in str(caught.value)
    assert len(handle.payloads) == 1


async def test_a_call_that_runs_out_of_time_is_not_made_again_and_is_cancelled() -> None:
    handle = FakeHandle(asyncio.Event().wait, encode_result(MODEL))  # type: ignore[arg-type]
    with pytest.raises(StageTimeout):
        await call(handle, seconds=0.01)
    assert [response.cancelled for response in handle.responses] == [True]


async def test_a_call_whose_replica_dies_at_the_deadline_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies_late() -> bytes:
        monkeypatch.setattr("contracts.deadline.time.time", lambda: deadline.at)
        raise ActorDiedError

    deadline = Deadline.after(60)
    handle = FakeHandle(dies_late, encode_result(MODEL))
    with pytest.raises(StageTimeout):
        await call_with_deadline(handle, CTX, deadline, "x", DECODER)  # type: ignore[arg-type]
    assert len(handle.payloads) == 1


async def test_a_call_goes_by_the_wire_where_there_is_one(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(), await replicas.open(1, encode_result(MODEL))
    assert await call(handle, lines=lines) == MODEL
    assert (len(replicas.payloads), handle.payloads) == (1, [])


async def test_a_call_goes_by_the_handle_while_no_replica_listens(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(0)
    assert await call(handle, lines=lines) == MODEL


async def test_a_call_whose_replica_dies_is_made_once_more_by_another_line(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(), await replicas.open(2, DIES, encode_result(MODEL))
    assert await call(handle, lines=lines) == MODEL
    first, second = replicas.payloads
    assert first == second
    assert handle.payloads == []


async def test_a_call_whose_only_replica_dies_is_made_once_more_by_the_handle(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(1, DIES)
    assert await call(handle, lines=lines) == MODEL
    assert handle.payloads == replicas.payloads


async def test_a_call_is_not_made_a_third_time(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(3, DIES, DIES, encode_result(MODEL))
    with pytest.raises(StageFailed) as caught:
        await call(handle, lines=lines)
    assert caught.value.stage == "planner"
    assert (len(replicas.payloads), handle.payloads) == (2, [])


async def test_a_replica_without_room_is_overloaded(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(2, places=Places(0, 0))
    with pytest.raises(Overloaded) as caught:
        await call(handle, lines=lines)
    assert caught.value.stage == "planner"
    assert (replicas.payloads, handle.payloads) == ([], [])


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (RuntimeError("secret"), StageFailed),
        (asyncio.CancelledError("secret"), StageFailed),
        (encode_error(InvalidFilter("No such field.")), InvalidFilter),
        (b"garbage", StageFailed),
    ],
    ids=["raises", "stops", "answers with an error", "answers with garbage"],
)
async def test_nothing_else_is_made_again_by_the_wire(
    outcome: bytes | BaseException, kind: type[StrataError], replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(2, outcome, encode_result(MODEL))
    with pytest.raises(kind) as caught:
        await call(handle, lines=lines)
    assert "secret" not in str(caught.value) + caplog.text
    assert (caught.value.stage, len(replicas.payloads), handle.payloads) == ("planner", 1, [])


async def test_a_call_by_the_wire_that_runs_out_of_time_is_cancelled_there(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(2, HANGS, HANGS)
    with pytest.raises(StageTimeout):
        await call(handle, seconds=0.5, lines=lines)
    await until(lambda: replicas.cancelled)
    assert (len(replicas.payloads), replicas.cancelled, handle.payloads) == (1, 1, [])


async def test_a_caller_that_gives_up_cancels_the_work(replicas: Replicas) -> None:
    handle, (lines, _) = FakeHandle(encode_result(MODEL)), await replicas.open(2, HANGS, HANGS)
    calling = asyncio.create_task(call(handle, lines=lines))
    await until(lambda: replicas.payloads)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(lambda: replicas.cancelled)
    assert (len(replicas.payloads), replicas.cancelled, handle.payloads) == (1, 1, [])


async def test_the_wire_leads_to_the_replicas_that_say_where_they_listen(replicas: Replicas) -> None:
    """One that fails, or does not listen, is left out; those known stay while none but dead ones answer."""
    handle = FakeHandle()
    _, [first, second] = await replicas.open(2)
    handle.said = [None, first, ActorDiedError()]
    lines = lines_to(handle)  # type: ignore[arg-type]
    await lines.look()
    assert lines._lines.keys() == {first}
    for unsaid in (DeploymentUnavailableError(None), [None, ActorDiedError()]):
        handle.said = unsaid
        await lines.look()
        assert lines._lines.keys() == {first}
    handle.said = [second]
    await lines.look()
    assert lines._lines.keys() == {second}
    handle.said = [None]
    await lines.look()
    assert lines._lines == {}
