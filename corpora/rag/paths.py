"""The two paths from a query to hits (R8), the cache before them (R9), and the fallback from one to the other."""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import Overloaded, RequestError, StageError, StageFailed, StageTimeout
from contracts.trace import Degradation
from corpora.rag.cache import Entry, Flights, RankingCache, key
from corpora.rag.ports import Retriever
from corpora.rag.texts import Read, Texts
from corpora.rag.types import CacheUse, CorpusHit, CorpusQuery, Path, Ranking

Result = TypeVar("Result")

# The stage that a degradation names when the whole graph path failed.
GRAPH = "graph"
# A path's part of the time is at least so much of it, and the reader's the rest, however little a caller gives.
_LEAST_SHARE = 0.75


class Found(msgspec.Struct, frozen=True):
    """What a path found, before its corpus arranges it; ``cache`` says where the ranking came from."""

    path: Path
    hits: list[CorpusHit]
    below_threshold: int = 0
    degraded: tuple[Degradation, ...] = ()
    cache: CacheUse = "off"


class Paths:
    """Finds hits on either path.

    Args:
        retrievers: The paths.
        texts: Reads what they rank.
        cache: Rankings of late.
        reserve: Seconds kept for reading.
        settings: Names the model and all settings behind the paths, for the cache.
    """

    def __init__(
        self, retrievers: Mapping[Path, Retriever], texts: Texts, cache: RankingCache, reserve: float, settings: str
    ) -> None:
        self._retrievers = retrievers
        self._texts = texts
        self._cache = cache
        self._flights: Flights[Ranking] = Flights(lambda ranking: not ranking.degraded)
        self._reserve = reserve
        self._settings = settings

    async def find(self, ctx: RequestContext, deadline: Deadline, corpus: str, query: CorpusQuery, path: Path) -> Found:
        """What a path finds, or lately found; when the graph fails, what the keyword search finds in the time left.

        Raises:
            RequestError: The caller is at fault, or there is no room.
            StageError: Neither could answer.
        """
        began = time.perf_counter()
        try:
            return await self._remembered(ctx, deadline, corpus, query, path)
        except (StageError, Overloaded) as error:
            if path == "keyword":
                raise
            why = f"{error.code}: {error.message}"
        failed = Degradation(GRAPH, why, round((time.perf_counter() - began) * 1000))
        found = await self.search(ctx, deadline, query, "keyword")
        return msgspec.structs.replace(found, degraded=(failed, *found.degraded))

    async def search(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery, path: Path) -> Found:
        """What a path finds now.

        Raises:
            RequestError: The caller is at fault, or there is no room.
            StageError: It could not answer.
        """
        ranking = await self._rank(ctx, deadline, query, path)
        read = await self._read(ctx, deadline, query, ranking)
        return Found(path, read.hits, ranking.below_threshold, ranking.degraded)

    async def _remembered(
        self, ctx: RequestContext, deadline: Deadline, corpus: str, query: CorpusQuery, path: Path
    ) -> Found:
        if not self._cache.on:
            return await self.search(ctx, deadline, query, path)
        name = key(ctx, corpus, path, query, self._settings)
        known: str | None = None
        if entry := self._cache.get(name):
            read = await self._read(ctx, deadline, query, entry.ranking)
            if read.revision == entry.revision:
                return Found(path, read.hits, entry.ranking.below_threshold, cache="hit")
            known = read.revision

        async def search() -> Ranking:
            # Read before the search: what is written meanwhile shows under another revision.
            revision = known if known is not None else await self._revision(ctx, deadline)
            ranking = await self._rank(ctx, deadline, query, path)
            if revision is not None:
                self._cache.put(name, Entry(ranking, revision))
            return ranking

        ranking = await _in_time(deadline, self._flights.run(name, search))
        read = await self._read(ctx, deadline, query, ranking)
        return Found(path, read.hits, ranking.below_threshold, ranking.degraded, "miss")

    async def _rank(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery, path: Path) -> Ranking:
        left = deadline.left()
        due = Deadline.after(max(left - self._reserve, left * _LEAST_SHARE))
        return await _in_time(due, self._retrievers[path].retrieve(ctx, due, query))

    async def _read(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery, ranking: Ranking) -> Read:
        return await _in_time(deadline, self._texts.read(ctx, deadline, query, ranking.hits))

    async def _revision(self, ctx: RequestContext, deadline: Deadline) -> str | None:
        """The account's revision; ``None``, and nothing is remembered, where it can't be had soon."""
        due = Deadline.after(deadline.share(self._reserve, self._reserve))
        try:
            return await _in_time(due, self._texts.revision(ctx, due))
        except (StageError, Overloaded):
            return None


async def _in_time(deadline: Deadline, work: Awaitable[Result]) -> Result:
    """The work's result.

    Raises:
        RequestError, StageError: Its own; StageTimeout when the deadline passed, StageFailed for all else.
    """
    try:
        async with asyncio.timeout(deadline.left()):
            return await work
    except TimeoutError:
        raise StageTimeout("The retrieval ran out of time.") from None
    except (RequestError, StageError):
        raise
    except Exception as error:
        raise StageFailed(f"The retrieval failed ({type(error).__name__}).") from error
