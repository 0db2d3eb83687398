"""The one transport of the graph: a stage call is msgpack bytes under a deadline.

It goes by the wire (``deployments.wire``) to a replica that is known, and by Serve's handle while none is: in the first
moment, while the only replica is replaced, and for deployments that do not listen.

A call whose replica dies under it is made once more, on another replica and within the same deadline: stages only read,
and what else a replica may have kept is gone with it. Nothing else is retried: it would give more work to whoever has
no room or no time.

Serve's default transport (by reference) does not cancel the callee when the caller gives up; its gRPC transport and the
wire do, so every handle goes through :func:`connect`. Errors of ``contracts.errors`` travel inside the reply: they keep
their class and fields, and a caller's mistake does not fill the log of a replica with tracebacks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from contracts import errors
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded, StageFailed, StageTimeout, StrataError
from contracts.records import ModelRef
from deployments.environment import Environment
from deployments.metrics import RoutedMetrics
from deployments.wire.lines import Lines, Lost, Refused, Stopped
from deployments.wire.listener import Address

In = TypeVar("In")
Out = TypeVar("Out")

logger = logging.getLogger("ray.serve")

# Longest wait for all replicas of a stage to say where they listen.
_LOOK_S = 2.0

_ENCODER = msgspec.msgpack.Encoder()
_OK, _ERROR = b"\x00", b"\x01"
_ERROR_FIELDS = msgspec.msgpack.Decoder(tuple[str, str, str, str, str, float, int])
_ERROR_CLASSES = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StrataError)
}


class _Died(StageFailed):
    """The replica went away with the call."""


def encode_call(ctx: RequestContext, deadline: Deadline, request: object) -> bytes:
    """Pack the arguments of a stage call."""
    return _ENCODER.encode((ctx, deadline, request))


def encode_result(result: object) -> bytes:
    """Pack what a stage returned."""
    return _OK + _ENCODER.encode(result)


def encode_error(error: StrataError) -> bytes:
    """Pack what a stage raised."""
    parts = (error.message, error.field, error.remedy, error.stage, error.retry_after, error.http_status)
    return _ERROR + _ENCODER.encode((type(error).__name__, *parts))


def decode_reply(reply: bytes, decoder: "msgspec.msgpack.Decoder[Out]") -> Out:
    """Unpack a reply.

    Raises:
        StrataError: The one that the stage raised.
        msgspec.MsgspecError: The reply is garbage.
    """
    body = memoryview(reply)[1:]
    if reply[:1] == _OK:
        return decoder.decode(body)
    kind, message, field, remedy, stage, retry_after, http_status = _ERROR_FIELDS.decode(body)
    error = _ERROR_CLASSES.get(kind, StageFailed)
    raise error(message, field=field, remedy=remedy, stage=stage, retry_after=retry_after, http_status=http_status)


def connect(handle: DeploymentHandle[Any]) -> DeploymentHandle[Any]:
    """A handle bound to the transport. Call it inside the event loop that will make the calls.

    The router shares that loop: a call then hops no thread, and a cancelled await cancels the call itself.
    """
    if not handle.is_initialized:
        handle._init(_run_router_in_separate_loop=False)
    return handle.options(_by_reference=False, request_serialization="pickle", response_serialization="pickle")


def lines_to(handle: DeploymentHandle[Any]) -> Lines:
    """The wire to a stage.

    Args:
        handle: From :func:`connect`.

    Raises:
        ConfigError: Ray is to use TLS, and its certificates can't be read.
    """
    routed = RoutedMetrics(handle.deployment_name).routed
    return Lines(partial(_addresses, handle), routed, Environment.read().wire_tls("client"))


async def _addresses(handle: DeploymentHandle[Any]) -> list[Address] | None:
    """Where the replicas listen that Serve knows."""
    try:
        said = await handle.broadcast("address").results_async(timeout_s=_LOOK_S, return_exceptions=True)
    except Exception:  # None runs, or one does not answer: what is known is kept.
        return None
    found = [each for each in said if isinstance(each, Address)]
    # One that died is there for a while.
    return None if not found and any(isinstance(each, BaseException) for each in said) else found


async def call_with_deadline(
    handle: DeploymentHandle[Any],
    ctx: RequestContext,
    deadline: Deadline,
    request: object,
    decoder: "msgspec.msgpack.Decoder[Out]",
    lines: Lines | None = None,
) -> Out:
    """Call a stage and give up at the deadline, cancelling the work in the replica.

    Args:
        handle: From :func:`connect`.
        ctx: Who asks.
        deadline: When to give up; the replica stops by itself then, too.
        request: The stage's request.
        decoder: Of the stage's result.
        lines: By the wire, as long as it leads somewhere.

    Raises:
        StrataError: Raised by the stage, unchanged.
        StageTimeout: The deadline passed.
        Overloaded: The stage's queue is full.
        StageFailed: Anything else; what exactly goes to the log, not to the caller.
    """
    stage, call = handle.deployment_name, encode_call(ctx, deadline, request)
    try:
        reply = await _within(deadline.left(), stage, _send, handle, lines, call)
    except _Died:
        reply = await _within(deadline.left(), stage, _send, handle, lines, call)
    try:
        return decode_reply(reply, decoder)
    except StrataError as error:
        error.stage = error.stage or stage
        raise
    except msgspec.MsgspecError:
        raise StageFailed("The stage answered something else than it should.", stage=stage) from None


async def _send(handle: DeploymentHandle[Any], lines: Lines | None, call: bytes) -> bytes:
    if lines and (line := lines.best()):
        return await line.call(call)
    reply: bytes = await _by_handle(handle, call)
    return reply


async def _by_handle(handle: DeploymentHandle[Any], *args: Any) -> Any:
    response = handle.remote(*args)
    try:
        return await response
    finally:
        response.cancel()


async def _within(seconds: float, stage: str, call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """What a call returns, or the error that stands for what went wrong; see :func:`call_with_deadline`."""
    if seconds <= 0:
        raise StageTimeout("No time was left to call the stage.", stage=stage)
    try:
        async with asyncio.timeout(seconds) as timer:
            return await call(*args)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        raise StageFailed("The stage was stopped.", stage=stage) from None
    except (BackPressureError, Refused):
        raise Overloaded("The stage has no room.", remedy="Retry in a moment.", stage=stage) from None
    except (RayActorError, DeploymentUnavailableError, Lost) as error:
        kind = StageFailed if isinstance(error, DeploymentUnavailableError) else _Died
        raise kind("The stage is not running.", stage=stage) from None
    except Stopped:
        raise StageFailed("The stage was stopped.", stage=stage) from None
    except Exception as error:
        if timer.expired():
            raise StageTimeout("The stage did not answer in time.", stage=stage) from None
        logger.error("Call of stage %s failed: %s", stage, type(error).__name__)
        raise StageFailed("The stage failed.", stage=stage) from None


class RemoteStage(Generic[In, Out]):
    """A stage behind a Serve handle; to the chain just a stage.

    Args:
        handle: Of the stage's deployment; connect happens here, so construct it in the loop that calls.
        result_type: What the stage returns.
    """

    def __init__(self, handle: DeploymentHandle[Any], result_type: type[Out]) -> None:
        self._handle = connect(handle)
        self._decoder = msgspec.msgpack.Decoder(result_type)
        self._lines = lines_to(self._handle)

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: In, /) -> Out:
        """Call the stage; see :func:`call_with_deadline`."""
        return await call_with_deadline(self._handle, ctx, deadline, request, self._decoder, self._lines)

    async def connect(self) -> None:
        """Find its replicas, so that no call has to wait for that."""
        await self._lines.look()

    async def describe(self, seconds: float) -> ModelRef | None:
        """Ask a replica whether it is up, and which model its vectors are of; see ``StageReplica.describe``.

        Raises:
            StageError: None answered within ``seconds``.
        """
        answer: ModelRef | None = await self.ask("describe", seconds)
        return answer

    async def ask(self, method: str, seconds: float) -> Any:
        """Call a method without arguments on a replica.

        Raises:
            StageError: None answered within ``seconds``.
        """
        handle = self._handle.options(method_name=method)
        return await _within(seconds, self._handle.deployment_name, _by_handle, handle)
