"""What the deployments of all stages have in common."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from ray.util import get_node_ip_address

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageFailed, StrataError
from contracts.records import ModelRef
from contracts.stages import Stage
from deployments.bounded import Bounded
from deployments.environment import Environment
from deployments.logs import log_unexpected
from deployments.metrics import WireMetrics
from deployments.scaling import BY_WIRE
from deployments.transport import encode_error, encode_result
from deployments.wire.listener import Address, Listener
from deployments.wire.places import Places

In = TypeVar("In")
Out = TypeVar("Out")

# How long calls under way get when a replica goes; less than Serve gives it.
_GRACE_S = 8.0


class StageReplica(ABC, Generic[In, Out]):
    """Server side of a stage call.

    Serve sends a replica no call before its constructor is done: then ``open`` has built the stage and warmed it up.

    Args:
        args: For ``open`` of the subclass.
        places: How many calls it takes by the wire; ``None``: calls come by Serve's handles alone.
    """

    name: ClassVar[str]
    request_type: ClassVar[Any]
    _listener: Listener | None = None

    async def __init__(self, *args: Any, places: Places | None = None) -> None:  # type: ignore[misc]  # Serve awaits it
        self._decoder = msgspec.msgpack.Decoder(tuple[RequestContext, Deadline, self.request_type])  # type: ignore[name-defined]
        self._stage: Stage[In, Out] = Bounded(self.name, await self.open(*args))
        if places:
            self._listener = Listener(self, places, WireMetrics(self.name).waiting)
            await self._listener.open(get_node_ip_address(), Environment.read().wire_tls("server"))

    def __del__(self) -> Coroutine[Any, Any, None] | None:
        """Called by Serve before the replica goes, which awaits what it returns."""
        listener, self._listener = self._listener, None
        return listener.close(_GRACE_S) if listener else None

    @abstractmethod
    async def open(self, *args: Any, **kwargs: Any) -> Stage[In, Out]:
        """Build the stage and warm it up."""

    async def __call__(self, payload: bytes) -> bytes:
        """Answer one call of the transport."""
        try:
            return encode_result(await self._stage(*self._decoder.decode(payload)))
        except StrataError as error:
            return encode_error(error)
        except Exception as error:
            # Raised, it would go to Serve's log with its message, which may hold text of the request.
            log_unexpected(error, self.name)
            return encode_error(StageFailed("The stage failed.", stage=self.name))

    async def address(self) -> Address | None:
        """Where it listens; asked by callers."""
        return self._listener.address() if self._listener else None

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Asked by Serve; for ``deployments.scaling.by_calls``."""
        return {BY_WIRE: self._listener.under_way if self._listener else 0}

    async def describe(self) -> ModelRef | None:
        """Asked by ``/readyz``: a replica answers once it is up, and says which model its vectors are of, if any."""
        return None

    async def check_health(self) -> None:
        """Serve replaces a replica that raises here or whose event loop does not get to it."""
