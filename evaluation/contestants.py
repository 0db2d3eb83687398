"""Index backends as ``index_bench`` measures them: opened empty, and gone without a trace afterwards."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from uuid import uuid4

from elasticsearch import ApiError, TransportError

from contracts.errors import StageFailed
from contracts.ports import SearchIndex, WritableIndex
from index.elastic.client import reason
from index.elastic.config import ElasticConfig, LayoutConfig, RecallConfig
from index.elastic.index import ElasticIndex
from index.elastic.mapping import routing_of
from index.embedded.config import EmbeddedConfig
from index.embedded.index import EmbeddedIndex

Open = TypeVar("Open", EmbeddedIndex, ElasticIndex)
_POLL_S = 0.2
_PATIENCE_S = 600


class Contestant(Protocol):
    """An index open for writing."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def index(self) -> WritableIndex:
        """What is measured."""
        ...

    async def settle(self) -> None:
        """Wait until nothing goes on in the background any more."""
        ...

    async def size(self) -> "Size":
        """How large it is now."""
        ...


class Size(NamedTuple):
    """Bytes on disk, and the segments that a search looks into one by one; ``None`` when they are not told."""

    bytes: int
    segments: int | None


class Embedded:
    """LanceDB and SQLite in a temporary folder."""

    name = "embedded"

    def __init__(self, index: EmbeddedIndex, folder: Path) -> None:
        self.index = index
        self.folder = folder

    @classmethod
    @asynccontextmanager
    async def open(cls, config: EmbeddedConfig) -> AsyncIterator["Embedded"]:
        """Open one; its folder goes at the end."""
        with tempfile.TemporaryDirectory(prefix="strata-bench-") as folder:
            async with _closing(await EmbeddedIndex.open(folder, config, write=True)) as index:
                yield cls(index, Path(folder))

    async def settle(self) -> None:
        """See ``Contestant``; all is done when ``optimize`` returns."""

    async def size(self) -> Size:
        """See ``Contestant``."""
        return Size((await self.index.stats()).bytes, None)


class Cluster(NamedTuple):
    """An Elasticsearch cluster: settings of its index, of which the prefix is not used, and what opens one there."""

    config: ElasticConfig
    open: Callable[[ElasticConfig], Awaitable[ElasticIndex]]


class Elastic:
    """Elasticsearch, under a prefix of its own."""

    name = "elasticsearch"

    def __init__(self, index: ElasticIndex, cluster: Cluster) -> None:
        self.index = index
        self._client = index.client
        self.cluster = cluster

    @classmethod
    @asynccontextmanager
    async def open(cls, cluster: Cluster, layout: LayoutConfig | None = None) -> AsyncIterator["Elastic"]:
        """Open one; all that is under its prefix goes at the end.

        Args:
            cluster: Where, and with which settings.
            layout: In place of that of the settings.

        Raises:
            RecallFailed: The cluster does not answer.
            StageFailed: At the end not all could be removed.
        """
        changes = {"prefix": f"bench-{uuid4().hex[:12]}", "layout": layout or cluster.config.layout}
        own = cluster._replace(config=cluster.config.model_copy(update=changes))
        async with _closing(await own.open(own.config)) as index:
            # Before anything is made: does it answer?
            await index.model()
            try:
                yield cls(index, own)
            finally:
                await _destroy(index, own.config.prefix)

    @asynccontextmanager
    async def reader(self, recall: RecallConfig) -> AsyncIterator[SearchIndex]:
        """The same records, searched with other settings."""
        config = self.cluster.config.model_copy(update={"recall": recall})
        async with _closing(await self.cluster.open(config)) as index:
            yield index

    async def settle(self) -> None:
        """See ``Contestant``: what ``optimize`` has only asked for, and merges."""
        # Forced merges take their turn, so when this one is done, that of ``optimize`` is.
        patient = self._client.options(request_timeout=_PATIENCE_S)
        await patient.indices.forcemerge(index=self.index.versions.alias, only_expunge_deletes=True)
        while await self._merging():  # noqa: ASYNC110 - the cluster tells nobody
            await asyncio.sleep(_POLL_S)
        # Searches go by merged segments from the next refresh on, and what they replace is gone from the next flush on.
        # Both come by themselves a little later.
        await self._client.indices.refresh(index=self.index.versions.alias)
        await self._client.indices.flush(index=self.index.versions.alias)

    async def size(self) -> Size:
        """See ``Contestant``; segments are counted once, bytes on all nodes. The statistics of shards lag behind."""
        nodes, others = self.index.versions.alias, [self.index.versions.texts, self.index.versions.ledger]
        rows = (await self._client.cat.segments(index=[nodes, *others], format="json", bytes="b")).body
        found = [row for row in rows if isinstance(row, Mapping)]
        primary = [row for row in found if row["index"] not in others and row["prirep"] == "p"]
        searched = [row for row in primary if row["searchable"] == "true"]
        return Size(sum(int(row["size"]) for row in found), len(searched))

    async def shards(self, account_id: str) -> int:
        """Shards that a search of an account asks."""
        version = await self.index.versions.serving()
        routing = routing_of(account_id) if version and version.meta.routed else None
        return len((await self._client.search_shards(index=self.index.versions.alias, routing=routing))["shards"])

    async def _merging(self) -> bool:
        stats = await self._client.indices.stats(index=self.index.versions.alias, metric="merge")
        return bool(stats["_all"]["total"]["merges"]["current"])


@asynccontextmanager
async def _closing(index: Open) -> AsyncIterator[Open]:
    """Close an index at the end."""
    try:
        yield index
    finally:
        await index.close()


async def _destroy(index: ElasticIndex, prefix: str) -> None:
    try:
        await index.versions.destroy()
    except (ApiError, TransportError) as error:
        raise StageFailed(
            f"Elasticsearch did not remove what was measured: {reason(error)}.",
            remedy=f"Remove the indices whose names start with {prefix}.",
            stage="eval",
        ) from None
