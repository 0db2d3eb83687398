"""An open-loop generator: requests go out when they are due, and their latency counts from then.

A generator that waits for an answer before it sends the next request asks least while the service is slowest, and so
leaves out the very times that matter (coordinated omission). Here the arrivals are fixed beforehand; one that has to
wait for a free connection has been waiting all the same, as in wrk2 (https://github.com/giltene/wrk2).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from contracts.trace import Degradation, Trace

OK = "ok"
# Nobody answered in time; no connection was free in time; there was nobody to connect to, or they hung up.
TIMEOUT, UNSENT, UNREACHABLE = "timeout", "unsent", "unreachable"


class Reply(msgspec.Struct, frozen=True):
    """What became of a request.

    Args:
        code: ``ok``, one of the generator's own, or the service's HTTP status and error code.
        trace: Of an answer.
        degraded: Of an answer.
        retry_after: Seconds that a refusal named in ``Retry-After``, where it did.
    """

    code: str
    trace: Trace | None = None
    degraded: tuple[Degradation, ...] = ()
    retry_after: float | None = None


class Sample(msgspec.Struct, frozen=True):
    """One request.

    Args:
        late_ms: Sent so long after it was due.
        took_ms: Answered, or given up, so long after it was due.
        done_s: The same moment, in seconds after the step began.
        reply: What became of it.
    """

    late_ms: float
    took_ms: float
    done_s: float
    reply: Reply

    @property
    def due_s(self) -> float:
        """When it was due, in seconds after the step began."""
        return self.done_s - self.took_ms / 1000


Ask = Callable[[str], Awaitable[Reply]]


async def drive(
    ask: Ask, queries: Iterator[str], due: Sequence[float], *, connections: int, patience: float
) -> list[Sample]:
    """Send requests when they are due.

    Args:
        ask: Sends one query.
        queries: At least as many as are due.
        due: Seconds after now, rising; see :func:`evaluation.load.schedule.arrivals`.
        connections: Requests under way at once, at most; it bounds what the client needs.
        patience: Seconds after which a caller gives up, counted from when its request was due. Nothing goes on longer
            than that after the last arrival.

    Returns:
        One sample for each moment, in the order in which they ended.
    """
    clock = asyncio.get_running_loop().time
    started = clock()
    moments = iter(due)
    samples: list[Sample] = []

    async def send_what_is_next() -> None:
        for moment in moments:
            at = started + moment
            await asyncio.sleep(at - clock())
            sent = clock()
            reply = await _reply(ask, next(queries), at + patience)
            done = clock()
            samples.append(Sample((sent - at) * 1000, (done - at) * 1000, done - started, reply))

    async with asyncio.TaskGroup() as senders:
        for _ in range(min(connections, len(due))):
            senders.create_task(send_what_is_next())
    return samples


async def _reply(ask: Ask, query: str, until: float) -> Reply:
    if asyncio.get_running_loop().time() >= until:
        return Reply(UNSENT)
    try:
        async with asyncio.timeout_at(until):
            return await ask(query)
    except TimeoutError:
        return Reply(TIMEOUT)
