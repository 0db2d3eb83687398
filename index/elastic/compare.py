"""What two index versions differ in: the keys of records that one has and the other has not."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

from elasticsearch import AsyncElasticsearch

from index.elastic.config import WriteConfig
from index.elastic.patience import patiently

# The most hits of one search, and how many are aimed at: keys are digests, which spread evenly over the ranges.
_MOST, _AIM = 10_000, 4_000
# Ranges compared at a time.
_SIDE_BY_SIDE = 4
# Ranges are told by the first eight hexadecimal digits.
SPACE = 16**8


async def differences(
    client: AsyncElasticsearch, config: WriteConfig, source: str, target: str
) -> AsyncIterator[tuple[set[str], set[str]]]:
    """Compare two indices of node records, range of keys by range of keys, each key once.

    Nothing is held open in the cluster, so it may be consumed as slowly as need be; keys are compared as they are when
    their range comes.

    Args:
        client: To the cluster.
        config: How patient it is.
        source: An index, refreshed.
        target: Another one, refreshed.

    Yields:
        The keys that only ``source`` has, and those that only ``target`` has, of the next range.
    """
    most = max(await asyncio.gather(count(client, config, source), count(client, config, target)))
    left = ranges(most)
    while left:
        now, left = left[:_SIDE_BY_SIDE], left[_SIDE_BY_SIDE:]
        asked = (_keys(client, config, index, *each) for each in now for index in (source, target))
        found = await asyncio.gather(*asked)
        for (first, end), ours, theirs in zip(now, found[::2], found[1::2], strict=True):
            if max(len(ours), len(theirs)) < _MOST:
                yield ours - theirs, theirs - ours
            else:
                # It has grown meanwhile.
                middle = (first + end) // 2
                left += [(first, middle), (middle, end)]


async def in_batches(
    found: AsyncIterator[tuple[set[str], set[str]]], size: int
) -> AsyncIterator[tuple[list[str], list[str]]]:
    """What ``differences`` yields, in lists of ``size`` keys of either kind; the last ones are shorter, or empty."""
    ours: list[str] = []
    theirs: list[str] = []
    async for more_ours, more_theirs in found:
        ours += more_ours
        theirs += more_theirs
        while max(len(ours), len(theirs)) >= size:
            yield ours[:size], theirs[:size]
            del ours[:size], theirs[:size]
    if ours or theirs:
        yield ours, theirs


async def count(client: AsyncElasticsearch, config: WriteConfig, index: str) -> int:
    """How many records an index has."""
    return int((await patiently(config, client.count, index=index))["count"])


def ranges(records: int) -> list[tuple[int, int]]:
    """Ranges of some thousand keys each, that hold all keys.

    Args:
        records: How many keys there are.

    Returns:
        Where each range starts, and where the next one does, in 0..``SPACE``.
    """
    parts = max(1, -(-records // _AIM))
    starts = [part * SPACE // parts for part in range(parts + 1)]
    return list(pairwise(starts))


def bounds(first: int, end: int) -> dict[str, str]:
    """The condition on keys of a range."""
    condition = {"gte": f"{first:08x}"}
    return condition if end == SPACE else condition | {"lt": f"{end:08x}"}


async def _keys(client: AsyncElasticsearch, config: WriteConfig, index: str, first: int, end: int) -> set[str]:
    """The keys of a range, as many of them as one search returns; taken from doc values, which is fastest."""
    found = await patiently(
        config,
        client.search,
        index=index,
        query={"range": {"key": bounds(first, end)}},
        size=_MOST,
        sort=["key"],
        stored_fields="_none_",
        track_total_hits=False,
        allow_partial_search_results=False,
        filter_path="hits.hits.sort",
    )
    return {hit["sort"][0] for hit in found.get("hits", {}).get("hits", [])}
