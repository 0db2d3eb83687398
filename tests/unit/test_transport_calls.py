"""What a stage call does when its replica dies, has no room or takes too long; on a stand-in for Serve's handle."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, Overloaded, StageFailed, StageTimeout, StrataError
from contracts.records import ModelRef
from deployments.transport import call_with_deadline, encode_error, encode_result

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


class FakeHandle:
    """Answers each call with the next outcome."""

    deployment_name = "planner"

    def __init__(self, *outcomes: bytes | Exception | Callable[[], Awaitable[bytes]]) -> None:
        self._outcomes = list(outcomes)
        self.payloads: list[bytes] = []
        self.responses: list[FakeResponse] = []

    def remote(self, payload: bytes) -> FakeResponse:
        self.payloads.append(payload)
        self.responses.append(FakeResponse(self._outcomes.pop(0)))
        return self.responses[-1]


async def call(handle: FakeHandle, seconds: float = 60) -> ModelRef:
    answer: ModelRef = await call_with_deadline(handle, CTX, Deadline.after(seconds), "x", DECODER)  # type: ignore[arg-type]
    return answer


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
