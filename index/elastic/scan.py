"""All hits of a search, however many, as the index was at one moment."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from elasticsearch import AsyncElasticsearch, NotFoundError

_KEEP_ALIVE = "2m"


async def scan(
    client: AsyncElasticsearch,
    index: str,
    query: Mapping[str, Any],
    fields: Sequence[str],
    *,
    routing: str | None = None,
    sort: str = "_shard_doc",
    page: int = 5_000,
) -> AsyncIterator[Mapping[str, Any]]:
    """Read page by page at a point in time.

    Args:
        client: To the cluster.
        index: Its name; one that does not exist has no hits.
        query: What to look for.
        fields: Of the source; empty for ids only.
        routing: Where to look; ``None`` for everywhere.
        sort: The order; the default is the cheapest.
        page: Hits a request.
    """
    try:
        pit = (await client.open_point_in_time(index=index, keep_alive=_KEEP_ALIVE, routing=routing))["id"]
    except NotFoundError:
        return
    after: Sequence[Any] | None = None
    try:
        while True:
            found = await client.search(
                pit={"id": pit, "keep_alive": _KEEP_ALIVE},
                query=query,
                size=page,
                sort=[sort],
                search_after=after,
                source_includes=list(fields),
                source=bool(fields),
                track_total_hits=False,
                allow_partial_search_results=False,
            )
            hits = found["hits"]["hits"]
            pit = found["pit_id"]
            for hit in hits:
                yield hit
            if len(hits) < page:
                return
            after = hits[-1]["sort"]
    finally:
        await client.options(ignore_status=404).close_point_in_time(id=pit)
