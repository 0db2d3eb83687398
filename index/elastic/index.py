"""The Elasticsearch index as one object: what the stages and the ingest see of it."""

from collections.abc import Sequence
from typing import Any

import msgspec
from elasticsearch import AsyncElasticsearch

from contracts.breaker import Breaker
from contracts.deadline import Deadline
from contracts.errors import ConfigError
from contracts.hits import Level, Relation
from contracts.ports import Embeddable, IndexStats, JournalEntry, JournalState, NodeMeta, Recalled, RecallQuery
from contracts.records import ModelRef
from index.elastic.client import Secrets, connect
from index.elastic.config import ElasticConfig
from index.elastic.ledger import Ledger
from index.elastic.mapping import node_id
from index.elastic.search import Search
from index.elastic.versions import Versions
from index.elastic.writer import Writer

_TEXT: dict[Level, tuple[str, str]] = {"L1": ("overview", "has_overview"), "L2": ("content", "has_content")}
# A reader that finds a revision already replaced looks again; twice in a row is all but impossible.
_ATTEMPTS = 3


class ElasticIndex:
    """``WritableIndex`` on an Elasticsearch cluster; any number of processes may read and write. Made by ``open``."""

    def __init__(self, client: AsyncElasticsearch, config: ElasticConfig, *, write: bool) -> None:
        self.client = client
        self.versions = Versions(client, config)
        self._ledger = Ledger(client, self.versions.ledger, config.write)
        self._search = Search(client, self.versions, self._ledger, config)
        writer = Writer(client, self.versions, self._ledger, config.write, self._search.forget)
        self._writer = writer if write else None

    @property
    def breaker(self) -> Breaker:
        """Whether searches are let through to the cluster."""
        return self._search.breaker

    @classmethod
    async def open(
        cls, config: ElasticConfig, hosts: Sequence[str], secrets: Secrets | None = None, *, write: bool = False
    ) -> "ElasticIndex":
        """Open the index of a cluster; one that does not exist is empty. Nothing is asked of the cluster yet.

        Args:
            config: Settings.
            hosts: URLs of nodes.
            secrets: What proves who we are; nothing when left out.
            write: Whether it may be written to.

        Raises:
            ConfigError: The settings and secrets do not fit together.
        """
        return cls(connect(config.connection, secrets or Secrets(), hosts), config, write=write)

    async def close(self) -> None:
        """See ``ReadableIndex``."""
        if self._writer:
            await self._writer.finish()
        await self.client.close()

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        """See ``SearchIndex``; a search that runs out of time is cancelled in the cluster."""
        return await self._search.recall(queries, deadline)

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """See ``SearchIndex``."""
        return await self._search.meta(account_id, uris)

    async def revision(self, account_id: str) -> str:
        """See ``SearchIndex``."""
        return await self._search.revision(account_id)

    async def model(self) -> ModelRef | None:
        """See ``SearchIndex``."""
        version = await self._search.serving()
        if version is None or await self._search.ask(self._ledger.empty):
            return None
        return version.meta.model

    async def read(self, account_id: str, uris: Sequence[str], level: Level) -> dict[str, str]:
        """See ``ContentStore``."""
        if level not in _TEXT:
            return {}
        name, flag = _TEXT[level]
        bodies = await self._bodies(account_id, uris, name, flag)
        return {uri: body[name] for uri, body in bodies.items() if name in body}

    async def edges(self, account_id: str, uri: str, limit: int) -> list[Relation]:
        """See ``RelationStore``."""
        bodies = await self._bodies(account_id, [uri], "relations", None)
        found = msgspec.convert(bodies.get(uri, {}).get("relations", []), list[Relation])
        return sorted(found, key=lambda edge: -edge.weight)[:limit]

    async def stats(self) -> IndexStats:
        """See ``ReadableIndex``; one aggregation over all records."""
        version = await self._search.serving()
        if version is None:
            return IndexStats({}, 0)
        kinds = {"terms": {"field": "kind", "size": 1_000, "missing": ""}}
        accounts = {"terms": {"field": "account_id", "size": 10_000}, "aggs": {"kinds": kinds}}
        found = await self._search.ask(self.client.search, index=version.name, size=0, aggs={"accounts": accounts})
        sizes = await self._search.ask(
            self.client.indices.stats, index=[version.name, self.versions.texts, self.versions.ledger], metric="store"
        )
        nodes = {
            account["key"]: {kind["key"]: kind["doc_count"] for kind in account["kinds"]["buckets"]}
            for account in found["aggregations"]["accounts"]["buckets"]
        }
        return IndexStats(dict(sorted(nodes.items())), sizes["_all"]["total"]["store"]["size_in_bytes"])

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        """See ``IndexWriter``."""
        if self._writer is None:
            return await self._search.ask(self._ledger.documents, account_id, source_id)
        return await self._writer.documents(account_id, source_id)

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        """See ``IndexWriter``."""
        await self._writing().put(account_id, source_id, documents, model)

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        """See ``IndexWriter``."""
        await self._writing().drop(account_id, source_id, document_ids)

    async def optimize(self) -> None:
        """See ``IndexWriter``."""
        await self._writing().optimize()

    async def record(
        self, account_id: str, source_id: str, document_ids: Sequence[str], state: JournalState, detail: str = ""
    ) -> None:
        """See ``IngestJournal``."""
        await self._writing().record(account_id, source_id, document_ids, state, detail)

    async def unfinished(self, account_id: str) -> list[JournalEntry]:
        """See ``IngestJournal``."""
        return await self._search.ask(self._ledger.unfinished, account_id)

    async def _bodies(
        self, account_id: str, uris: Sequence[str], name: str, flag: str | None
    ) -> dict[str, dict[str, Any]]:
        """What is read of nodes: of those that have it, the part ``name``."""
        bodies: dict[str, dict[str, Any]] = {}
        left = set(uris)
        for _ in range(_ATTEMPTS):
            nodes = await self._search.lookup(account_id, left)
            wanted = {uri: node.revision for uri, node in nodes.items() if not flag or node.meta.get(flag)}
            if not wanted:
                break
            ids = {node_id(account_id, uri, revision): uri for uri, revision in wanted.items()}
            found = await self._search.ask(
                self.client.mget, index=self.versions.texts, ids=list(ids), source_includes=[f"body.{name}"]
            )
            bodies |= {ids[doc["_id"]]: doc["_source"].get("body", {}) for doc in found["docs"] if doc.get("found")}
            left = wanted.keys() - bodies.keys()
            # A node without any text has none to be found; one that was just replaced is looked up anew.
            if not left or not flag:
                break
        return bodies

    def _writing(self) -> Writer:
        if self._writer is None:
            raise ConfigError("This index was opened for reading.", field="index", remedy="Open it with write=True.")
        return self._writer
