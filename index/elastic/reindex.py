"""Bring an index to another embedding model while it serves.

A new version is filled beside the one that serves, pass by pass: records that it lacks are copied with new vectors,
records that the other no longer has are removed. Keys of records are the same in all versions and never come again, so
a pass needs to know nothing of the one before, and a run that was stopped is simply gone on with. Commits under way are
records like others: which of them show is in the ledger, which all versions share.

Once a pass has little left to do, writes are kept out of the old version for a last pass, and the new one takes its
place. Writers wait meanwhile, and find the new version then.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from contracts.errors import ConfigError, StageFailed
from contracts.ports import Embedder
from contracts.records import ModelRef
from index.elastic.bulk import Bulk, Operation, WriteBlocked
from index.elastic.client import reason
from index.elastic.compare import count, differences, in_batches
from index.elastic.config import WriteConfig
from index.elastic.patience import patiently
from index.elastic.records import DELETED, WRITTEN, routing_in
from index.elastic.turn import Turn
from index.elastic.versions import Version, Versions
from index.embedding import embed_nodes, embedding_texts
from index.rows import unit

Phase = Literal["embed", "write", "clear"]
_AGAIN = "Run strata reindex again: it goes on where it stopped."


class Progress(Protocol):
    """Told how far a run is: texts embedded, nodes written, outdated nodes removed."""

    def __call__(self, phase: Phase, done: int, total: int | None, /) -> None:
        """``done`` so far; ``total`` is ``None``, as more may be written meanwhile."""
        ...


class ReindexReport(msgspec.Struct):
    """What a run did.

    Args:
        source: Number of the version that served.
        target: Number of the version with the new vectors.
        model: Their model.
        resumed: Whether the target was there before.
        reopened: Whether a run before this one had died and left the source closed to writes.
        passes: How often the two were compared.
        nodes: Nodes written.
        removed: Nodes removed, as they were replaced or dropped meanwhile.
        texts: Texts embedded.
        truncated: Texts that the model cut at its limit.
        swapped: Whether the target serves now.
        stopped_seconds: How long writers had to wait for the swap.
        seconds: Wall time.
    """

    source: int
    target: int
    model: ModelRef
    resumed: bool = False
    reopened: bool = False
    passes: int = 0
    nodes: int = 0
    removed: int = 0
    texts: int = 0
    truncated: int = 0
    swapped: bool = False
    stopped_seconds: float = 0.0
    seconds: float = 0.0


def silent(phase: Phase, done: int, total: int | None, /) -> None:
    """A progress that nobody looks at."""


class Reindex:
    """Re-embeds an index.

    Args:
        client: To the cluster.
        versions: Those of the index.
        embedder: Makes the new vectors.
        config: How is written, and when the writes are stopped for the last pass.
        batch: Nodes, and texts an embedder call, at a time. More: fuller batches, more to do again after a stop.
    """

    def __init__(
        self,
        client: AsyncElasticsearch,
        versions: Versions,
        embedder: Embedder,
        config: WriteConfig,
        batch: int = 256,
    ) -> None:
        self._client = client.options(request_timeout=config.request_timeout_ms / 1000)
        self._versions = versions
        self._embedder = embedder
        self._config = config
        self._batch = batch
        self._turn = Turn(client, versions.ledger, config)
        self._bulk = Bulk(client, config)

    async def run(self, progress: Progress = silent, *, swap: bool = True) -> ReindexReport:
        """Make a version with the vectors of the embedder, and let it serve.

        Stopped at any time, by cancellation or death, it leaves the old version serving.

        Args:
            progress: Told how far it is.
            swap: Whether the new version takes the old one's place; else it is only filled.

        Raises:
            ConfigError: There is nothing to re-embed, it is of this model already, another process is busy with the
                versions, or has changed them.
            StageFailed: The cluster or the model failed.
        """
        started = time.monotonic()
        try:
            await self._versions.prepare()
            async with self._turn.taken("re-embedding the index"):
                job = await self._begin(progress)
                while await self._pass(job) > self._config.settle_seconds:
                    pass
                if swap:
                    await self._swap(job)
        except WriteBlocked:
            raise ConfigError(
                "The new version was dropped, or closed to writes.", field="version", remedy=_AGAIN
            ) from None
        except (ApiError, TransportError) as error:
            raise StageFailed(f"Elasticsearch: {reason(error)}.", remedy=_AGAIN, stage="reindex") from None
        job.report.seconds = time.monotonic() - started
        return job.report

    async def _begin(self, progress: Progress) -> "_Job":
        """Choose the version to read and the one to write."""
        model = self._embedder.model
        source = await self._versions.serving_now()
        if source is None:
            raise ConfigError("There is no index yet.", field="index", remedy="Ingest with this model: strata ingest.")
        if source.closed:  # By a run that has died, as it is this one's turn.
            await self._versions.reopen(source)
        if source.meta.model == model:
            raise ConfigError(
                f"Version {source.number}, which serves, holds vectors of {model.name} {model.version} already.",
                field="embedder",
                remedy="Name another model: strata reindex --embedder NAME, or embedder in the settings.",
            )
        begun = [version for version in await self._versions.all() if version.meta.model == model]
        target = begun[-1] if begun else await self._versions.create(model)
        if target.closed:
            target = await self._versions.reopen(target)
        report = ReindexReport(source.number, target.number, model, resumed=bool(begun), reopened=source.closed)
        return _Job(source, target, report, progress)

    async def _pass(self, job: "_Job") -> float:
        """Bring over what the versions differ in; returns the seconds that took, without those of comparing."""
        job.report.passes += 1
        # On all copies: a record seen on one and not on another would be taken for removed, and that is for good.
        await self._refresh(job)
        worked = 0.0
        found = differences(self._client, self._config, job.source.name, job.target.name)
        async for missing, outdated in in_batches(found, self._batch):
            started = time.monotonic()
            if missing:
                await self._copy(job, missing)
            if outdated:
                await self._remove(job, outdated)
            worked += time.monotonic() - started
        return worked

    async def _swap(self, job: "_Job") -> None:
        """Bring over the rest while nothing is written, and let the target serve."""
        await self._turn.check()
        started = time.monotonic()
        async with self._versions.closing(job.source):
            await self._pass(job)
            await self._refresh(job)
            ours, theirs = [await count(self._client, self._config, each.name) for each in (job.source, job.target)]
            if ours != theirs:
                raise StageFailed(
                    f"Version {job.target.number} has {theirs:,} records instead of {ours:,}.",
                    remedy=_AGAIN,
                    stage="reindex",
                )
            await self._turn.check()
            await self._versions.replace(job.source, job.target)
            job.report.stopped_seconds = time.monotonic() - started
        job.report.swapped = True

    async def _copy(self, job: "_Job", keys: Sequence[str]) -> None:
        """Write records of the source into the target, with vectors of their own; some may be gone by now."""
        records = await self._records(job.source, keys)
        if not records:
            return
        given = await self._vector_texts([record["key"] for record in records])
        texts = [
            embedding_texts(record.get("name", ""), record.get("abstract", ""), given.get(record["key"], ()))
            for record in records
        ]

        def told(count: int) -> None:
            job.report.texts += count
            job.progress("embed", job.report.texts, None)

        vectors, cut = await embed_nodes(self._embedder, texts, self._batch, told)
        await self._write(
            job,
            [
                _operation("index", job.target, record, record | {"vector": vector})
                for record, vector in zip(records, unit(vectors), strict=True)
            ],
        )
        job.report.truncated += cut
        job.report.nodes += len(records)
        job.progress("write", job.report.nodes, None)

    async def _remove(self, job: "_Job", keys: Sequence[str]) -> None:
        """Remove records that the source no longer has."""
        records = await self._records(job.target, keys, ["key", "account_id", "uri"])
        await self._write(job, [_operation("delete", job.target, record) for record in records])
        job.report.removed += len(records)
        job.progress("clear", job.report.removed, None)

    async def _write(self, job: "_Job", operations: Sequence[Operation]) -> None:
        # A target that serves by now, swapped by someone else, has records of its own.
        serving = await self._versions.serving_now()
        if serving is None or serving.name != job.source.name:
            raise ConfigError(
                f"Version {job.source.number} was replaced by another one.", field="version", remedy=_AGAIN
            )
        await self._bulk.write(operations)

    async def _records(
        self, version: Version, keys: Sequence[str], fields: Sequence[str] = ("*",)
    ) -> list[dict[str, Any]]:
        """The records with these keys that a version has, without their vectors."""
        found = await patiently(
            self._config,
            self._client.search,
            index=version.name,
            query={"terms": {"key": keys}},
            size=len(keys),
            source_includes=fields,
            source_excludes=["vector"],
            track_total_hits=False,
            allow_partial_search_results=False,
        )
        return [hit["_source"] for hit in found["hits"]["hits"]]

    async def _vector_texts(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """The texts that vectors are made of, by key, of those that have some of their own."""
        field = "vector_texts"
        found = await patiently(
            self._config, self._client.mget, index=self._versions.texts, ids=keys, source_includes=[f"body.{field}"]
        )
        if any("error" in doc for doc in found["docs"]):
            raise StageFailed("Not all texts could be read.", remedy=_AGAIN, stage="reindex")
        return {doc["_id"]: doc["_source"].get("body", {}).get(field, []) for doc in found["docs"] if doc["found"]}

    async def _refresh(self, job: "_Job") -> None:
        names = [job.source.name, job.target.name]
        refreshed = await patiently(self._config, self._client.indices.refresh, index=names)
        if refreshed["_shards"]["failed"]:
            raise StageFailed("Not all copies of the index could be refreshed.", remedy=_AGAIN, stage="reindex")


@dataclass(frozen=True)
class _Job:
    """What a run reads and writes."""

    source: Version
    target: Version
    report: ReindexReport
    progress: Progress


def _operation(
    action: Literal["index", "delete"],
    version: Version,
    record: Mapping[str, Any],
    document: Mapping[str, Any] | None = None,
) -> Operation:
    return Operation(
        action,
        version.write_alias,
        record["key"],
        routing_in(version, record["account_id"]),
        document,
        record["uri"],
        WRITTEN if document else DELETED,
        alias=True,
    )
