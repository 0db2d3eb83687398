"""The hot-query cache (R9): rankings of late, none shared between tenants, none older than the last write.

An entry is a ranking, not an answer: its texts are read anew each time, and with them the source of truth says which of
its hits may show now. It holds as long as the account's index revision is the one read before it was searched for.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from corpora.rag.types import CorpusQuery, Path, Ranking

Value = TypeVar("Value")


class CacheConfig(BaseModel):
    """How much is remembered."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entries: int = Field(
        1000, ge=0, description="Rankings kept in an ingress, up to 20 KB each; 0 for none. More answer more at once."
    )
    max_age_s: float = Field(
        300.0, gt=0, description="A ranking is searched for anew after that long, though nothing was written."
    )


class Entry(msgspec.Struct, frozen=True):
    """A ranking, and the account's revision read before it was searched for."""

    ranking: Ranking
    revision: str


def key(ctx: RequestContext, corpus: str, path: Path, query: CorpusQuery, settings: str) -> bytes:
    """A hash of all that a ranking depends on.

    Args:
        ctx: Narrowed to the space that is searched: what its caller may see beyond that space does not matter.
        corpus: Name of the corpus.
        path: Which path ranks.
        query: What is asked; its text is taken as it is.
        settings: Names the model and settings behind the path.
    """
    parts = (ctx.account_id, ctx.owner_spaces(), corpus, path, query, settings)
    return blake2b(msgspec.msgpack.encode(parts), digest_size=20).digest()


class RankingCache:
    """A bounded memory of rankings: what is unused for longest goes first. Belongs to one event loop.

    Args:
        config: How much, and for how long.
        clock: Seconds that only ever grow.
    """

    def __init__(self, config: CacheConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._entries: OrderedDict[bytes, tuple[float, Entry]] = OrderedDict()

    @property
    def on(self) -> bool:
        """Whether anything is remembered."""
        return self._config.entries > 0

    def get(self, name: bytes) -> Entry | None:
        """What was kept under a key, unless it is too old."""
        kept_until, entry = self._entries.get(name, (0.0, None))
        if entry is None or kept_until <= self._clock():
            self._entries.pop(name, None)
            return None
        self._entries.move_to_end(name)
        return entry

    def put(self, name: bytes, entry: Entry) -> None:
        """Keep a ranking; a degraded one lacks hits, or order, and is not kept."""
        if not self.on or entry.ranking.degraded:
            return
        self._entries[name] = (self._clock() + self._config.max_age_s, entry)
        self._entries.move_to_end(name)
        while len(self._entries) > self._config.entries:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass
class _Flight(Generic[Value]):
    task: asyncio.Task[Value]
    waiting: int = 0


class Flights(Generic[Value]):
    """Work that several want at once is done once. Belongs to one event loop.

    Args:
        shared: Whether a result may be handed to others than the one who began the work.
    """

    def __init__(self, shared: Callable[[Value], bool]) -> None:
        self._shared = shared
        self._flights: dict[bytes, _Flight[Value]] = {}

    async def run(self, name: bytes, work: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """Do the work, or wait for one who does the same under the same name.

        Whoever gives up leaves the others theirs; the work is cancelled when nobody waits for it any more. One who
        waited for a failure, or for what may not be shared, does the work by itself: it may have more time.
        """
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._end(name, flight))
            return await self._wait(name, flight)
        try:
            result = await self._wait(name, flight)
        except Exception:
            return await work()
        return result if self._shared(result) else await work()

    async def _wait(self, name: bytes, flight: _Flight[Value]) -> Value:
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                # Nobody may join what is being cancelled.
                self._end(name, flight)
                flight.task.cancel()

    def _end(self, name: bytes, flight: _Flight[Value]) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]
