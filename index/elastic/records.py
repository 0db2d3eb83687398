"""The records of commits, in the version that serves: writing, finding and removing them.

A version may be replaced at any moment. Writing to the one that serves no more is refused, as it is closed by then; and
after each write it is looked whether the version serves still. So what was written is where all later versions take
their records from.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elasticsearch import AsyncElasticsearch

from contracts.errors import StageFailed
from contracts.ports import Embeddable
from index.elastic import queries
from index.elastic.bulk import Bulk, Operation, WriteBlocked
from index.elastic.config import WriteConfig
from index.elastic.mapping import node_id, node_record, routing_of, text_record
from index.elastic.patience import delay, patiently
from index.elastic.scan import scan
from index.elastic.state import Commit, Old, Pending
from index.elastic.versions import Version, Versions
from index.rows import refuse_foreign, unit

# Versions of a record (`external_gte`): a write that arrives after the removal it should have come before is void.
WRITTEN, DELETED = 1, 2
# Tries of a write that meets a swap of versions, and seconds between them.
SWAP_TRIES, _SWAP_PAUSE = 60, 0.5
# Values a terms query takes, by default 65,536.
_MAX_TERMS = 20_000


class Records:
    """Records of nodes and texts.

    Args:
        client: To the cluster.
        versions: Which one serves.
        config: How is written.
    """

    def __init__(self, client: AsyncElasticsearch, versions: Versions, config: WriteConfig) -> None:
        self._client = client.options(request_timeout=config.request_timeout_ms / 1000)
        self._versions = versions
        self._config = config
        self._bulk = Bulk(client, config)

    async def write(self, version: Version, commit: Commit, batch: Sequence[Embeddable]) -> None:
        """Write all records of a commit, where searches can find them once it is switched to.

        Raises:
            WriteBlocked: Another version serves, or is about to.
        """
        # A re-embedding that sees a node finds its texts.
        await self._bulk.write(self._texts(commit, batch))
        await self._bulk.write(self._nodes(version, commit, batch))
        await self._refresh(version.name)
        if not await self._serves(version):
            raise WriteBlocked

    async def old(
        self, version: Version, account_id: str, source_id: str, names: Sequence[str], uris: Sequence[str]
    ) -> tuple[Old, ...]:
        """The node records that documents, and nodes of these URIs, have now.

        Raises:
            InvalidInput: A URI belongs to another source.
        """
        wanted: list[queries.Body] = [
            *({"bool": {"filter": [_term("source_id", source_id), _terms("document_id", p)]}} for p in _parts(names)),
            *(_terms("uri", part) for part in _parts(uris)),
        ]
        condition = {"bool": {"filter": [_term("account_id", account_id)], "should": wanted, "minimum_should_match": 1}}
        found = await self._scan(
            version.name, condition, ["source_id", "document_id", "uri", "revision"], routing_in(version, account_id)
        )
        refuse_foreign(source_id, ((row["source_id"], row["document_id"], row["uri"]) for _, row in found))
        return tuple(Old(key, row["revision"]) for key, row in found)

    async def written(self, account_id: str, pending: Pending) -> list[str]:
        """Ids of all records of a commit's revisions."""
        version = await self._versions.serving_now()
        if version is None or pending.last < pending.number:
            return []
        names = [version.name, self._versions.texts]
        await self._refresh(*names)
        revisions = {"range": {"revision": {"gte": pending.number, "lte": pending.last}}}
        condition = {"bool": {"filter": [_term("account_id", account_id), revisions]}}
        return list({key for name in names for key, _ in await self._scan(name, condition, [], None)})

    async def remove(self, account_id: str, ids: Sequence[str]) -> None:
        """Remove records from the nodes and the texts, through a swap of versions if need be."""
        if not ids:
            return
        for _ in range(SWAP_TRIES):
            version = await self._versions.serving_now()
            if version is None:
                return
            routing, texts = routing_in(version, account_id), self._versions.texts
            try:
                await self._bulk.write(
                    Operation("delete", version.write_alias, key, routing, version=DELETED, alias=True) for key in ids
                )
                await self._bulk.write(Operation("delete", texts, key, version=DELETED) for key in ids)
                await self._refresh(version.name)
                if await self._serves(version):
                    return
            except WriteBlocked:
                await self.swapped()
        raise StageFailed("The index takes no writes.", remedy="See strata index list, and try again.", stage="ingest")

    async def swapped(self) -> None:
        """Wait a little for a swap of versions to be done."""
        await asyncio.sleep(_SWAP_PAUSE)
        self._versions.forget()

    def _texts(self, commit: Commit, batch: Sequence[Embeddable]) -> Iterator[Operation]:
        for staged, item in zip(commit.documents, batch, strict=True):
            for node in item.document.nodes:
                if text := text_record(commit.account_id, staged.revision, node):
                    key = node_id(commit.account_id, node.uri, staged.revision)
                    yield Operation("index", self._versions.texts, key, None, text, node.uri, WRITTEN)

    def _nodes(self, version: Version, commit: Commit, batch: Sequence[Embeddable]) -> Iterator[Operation]:
        account_id, routing = commit.account_id, routing_in(version, commit.account_id)
        for staged, item in zip(commit.documents, batch, strict=True):
            for node, vector in zip(item.document.nodes, unit(item.vectors), strict=True):
                record = node_record(account_id, commit.source_id, staged.document_id, staged.revision, node, vector)
                key = record["key"]
                yield Operation("index", version.write_alias, key, routing, record, node.uri, WRITTEN, alias=True)

    async def _serves(self, version: Version) -> bool:
        """Whether a version serves still, so that what was written to it is not lost: a swap waits for writes."""
        serving = await self._versions.serving_now()
        return serving is not None and serving.name == version.name

    async def _refresh(self, *names: str) -> None:
        """Let searches see what was written, on every copy of every shard; an index that is gone needs none."""
        for attempt in range(1, self._config.attempts + 1):
            refreshed = await patiently(
                self._config, self._client.indices.refresh, index=names, ignore_unavailable=True
            )
            if not refreshed["_shards"]["failed"]:
                return
            await asyncio.sleep(delay(self._config, attempt))
        raise StageFailed("Not all copies of the index could be refreshed.", remedy="Ingest again.", stage="ingest")

    async def _scan(
        self, index: str, condition: queries.Body, fields: Sequence[str], routing: str | None
    ) -> list[tuple[str, Mapping[str, Any]]]:
        return [
            (hit["_id"], hit.get("_source", {}))
            async for hit in scan(self._client, index, condition, fields, routing=routing)
        ]


def routing_in(version: Version, account_id: str) -> str | None:
    """Where a version keeps an account's records; ``None`` for anywhere."""
    return routing_of(account_id) if version.meta.routed else None


def _term(field: str, value: str) -> queries.Body:
    return {"term": {field: value}}


def _terms(field: str, values: Sequence[str]) -> queries.Body:
    return {"terms": {field: list(values)}}


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Values in parts of as many as a query takes."""
    return (values[start : start + _MAX_TERMS] for start in range(0, len(values), _MAX_TERMS))
