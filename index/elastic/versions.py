"""Index versions: each holds the vectors of one model, and an alias says which one serves (design decision 9)."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from elasticsearch import ApiError, AsyncElasticsearch, BadRequestError, NotFoundError, TransportError

from contracts.errors import ConfigError, StageFailed
from contracts.records import ModelRef
from index.elastic.client import TimedClient, reason
from index.elastic.config import ElasticConfig
from index.elastic.mapping import FORMAT, LEDGER, TEXTS, Meta, nodes_mapping, nodes_settings, settings
from index.elastic.patience import patiently

_WANTED = "*.aliases,*.mappings._meta,*.settings.index.blocks.write,*.settings.index.uuid"


class Version(msgspec.Struct, frozen=True):
    """An index version.

    Args:
        name: Of the Elasticsearch index.
        meta: What it holds.
        serving: Whether searches and writes go to it.
        closed: Whether it takes no writes: while it is being replaced, and since it has been.
        uuid: Tells it from others of the same name, made after it was removed; empty when it was just made.
    """

    name: str
    meta: Meta
    serving: bool
    closed: bool = False
    uuid: str = ""

    @property
    def number(self) -> int:
        """From 1; also the end of its name."""
        return int(self.name.rpartition("-")[2])

    @property
    def write_alias(self) -> str:
        """What writes name, demanding an alias: a late one to a version that is gone must not make an index anew."""
        prefix, _, number = self.name.rpartition("-nodes-")
        return f"{prefix}-write-{number}"


class VersionSize(msgspec.Struct, frozen=True):
    """A version with what it weighs: records, replaced ones not yet merged away among them, and bytes on all nodes."""

    version: Version
    health: str
    records: int
    bytes: int


class Versions:
    """The versions under one prefix.

    Args:
        client: To the cluster.
        config: Prefix and layout, and how long the serving version is taken for granted.
    """

    def __init__(self, client: AsyncElasticsearch, config: ElasticConfig) -> None:
        prefix = config.prefix
        self._client = client
        self._clients = TimedClient(client)
        self._write = config.write
        self._patient = client.options(request_timeout=config.write.request_timeout_ms / 1000)
        self._layout = config.layout
        self._resolve_seconds = config.recall.resolve_seconds
        self._known: tuple[float, Version] | None = None
        self._prepared = False
        self.alias = f"{prefix}-nodes"
        self.texts = f"{prefix}-texts"
        self.ledger = f"{prefix}-ledger"

    async def serving(self, seconds: float | None = None) -> Version | None:
        """The version that serves; ``None`` before the first write.

        Args:
            seconds: How long it may take, if it has to be looked up; the client's when left out.
        """
        if self._known and time.monotonic() - self._known[0] < self._resolve_seconds:
            return self._known[1]
        version = next(iter(await self._read(self.alias, seconds)), None)
        # That there is none is not taken for granted: what another process writes first shall show at once.
        self._known = None if version is None else (time.monotonic(), version)
        return version

    async def serving_now(self) -> Version | None:
        """The version that serves, looked up; for what would be lost in one that no longer does."""
        self.forget()
        return await patiently(self._write, self.serving, self._write.request_timeout_ms / 1000)

    def forget(self) -> None:
        """Look again the next time."""
        self._known = None

    async def all(self) -> list[Version]:
        """All versions, oldest first."""
        return await self._read(f"{self.alias}-*")

    async def sizes(self) -> list[VersionSize]:
        """All versions with their sizes, oldest first."""
        versions = await self.all()
        if not versions:
            return []
        rows = await self._client.cat.indices(
            index=f"{self.alias}-*", format="json", bytes="b", h=["index", "health", "docs.count", "store.size"]
        )
        held = {row["index"]: row for row in rows.body if isinstance(row, Mapping)}
        return [
            VersionSize(
                version,
                held[version.name]["health"],
                int(held[version.name]["docs.count"] or 0),
                int(held[version.name]["store.size"] or 0),
            )
            for version in versions
            if version.name in held
        ]

    async def get(self, number: int) -> Version:
        """A version by its number.

        Raises:
            ConfigError: There is none.
        """
        versions = await self.all()
        for version in versions:
            if version.number == number:
                return version
        known = ", ".join(str(version.number) for version in versions) or "none"
        raise ConfigError(f"There is no index version {number}.", field="version", remedy=f"Versions are: {known}.")

    async def create(self, model: ModelRef, *, serve: bool = False) -> Version:
        """Make an empty version.

        Args:
            model: Whose vectors it will hold.
            serve: Let it serve from the start, in place of what serves now.

        Raises:
            ConfigError: Another process made one for another model at the same time.
        """
        await self.prepare()
        meta = Meta(model, routed=self._layout.routing == "account")
        versions = await self.all()
        name = f"{self.alias}-{versions[-1].number + 1 if versions else 1:06d}"
        first = serve and not any(version.serving for version in versions)
        version = Version(name, meta, serving=first)
        aliases = [version.write_alias, *([self.alias] if first else [])]
        made = await self._create(name, nodes_mapping(meta, self._layout), nodes_settings(self._layout), aliases)
        self.forget()
        if not made:
            # Another process was faster: its version is as good, if it is for the same model.
            version = await self.get(version.number)
            if version.meta.model != model:
                raise ConfigError(
                    f"Version {version.number} was just made for {version.meta.model.name}.",
                    field="embedder",
                    remedy="Run one of the two after the other.",
                )
        return await self.swap(version) if serve and not version.serving else version

    async def prepare(self) -> None:
        """Make the indices that all versions share, where they are missing."""
        if not self._prepared:
            await self._create(self.texts, TEXTS)
            await self._create(self.ledger, LEDGER)
            self._prepared = True

    async def swap(self, version: Version) -> Version:
        """Let a version serve, whatever the one that serves now holds beyond it.

        Raises:
            ConfigError: Another one serves meanwhile.
        """
        held = await self.serving_now()
        if held is None:
            await self._patient.indices.put_alias(index=version.name, name=self.alias)
        elif held.name != version.name:
            async with self.closing(held):
                return await self.replace(held, version)
        return msgspec.structs.replace(await self.reopen(version), serving=True)

    async def replace(self, held: Version, version: Version) -> Version:
        """Let a version serve in place of another, in one step.

        The other one, which is closed, stays so: a process that still takes it for the serving one finds out when it
        writes.

        Raises:
            ConfigError: Another one serves meanwhile.
        """
        await patiently(self._write, self._move_alias, held, version)
        opened = await self.reopen(version) if version.closed else version
        return msgspec.structs.replace(opened, serving=True)

    @asynccontextmanager
    async def closing(self, version: Version) -> AsyncIterator[None]:
        """Keep all writes out of the serving version; unless another one serves by the end, they are let in again.

        Raises:
            StageFailed: It could not be closed, or not be opened again.
        """
        try:
            # Returns once all writes under way have ended.
            closed = await patiently(self._write, self._patient.indices.add_block, index=version.name, block="write")
            if closed["indices"] and not closed["shards_acknowledged"]:
                raise StageFailed("Not all shards have stopped to take writes.", remedy="Try again.", stage="index")
            yield
        finally:
            try:
                serving = await self.serving_now()
                if serving and serving.name == version.name:
                    await self.reopen(version)
            except (ApiError, TransportError) as error:
                raise StageFailed(
                    f"Version {version.number} may still take no writes: {reason(error)}.",
                    remedy=f"When the cluster answers again: strata index swap {version.number}",
                    stage="index",
                ) from None

    async def reopen(self, version: Version) -> Version:
        """Let writes into a version again."""
        lifted = {"index.blocks.write": None}
        await patiently(self._write, self._patient.indices.put_settings, index=version.name, settings=lifted)
        self.forget()
        return msgspec.structs.replace(version, closed=False)

    async def drop(self, version: Version) -> None:
        """Remove a version with all its records.

        Raises:
            ConfigError: It serves.
        """
        if any(each.serving for each in await self.all() if each.name == version.name):
            raise ConfigError(
                f"Version {version.number} serves.", field="version", remedy="Swap to another first: strata index swap."
            )
        await self._client.options(ignore_status=404).indices.delete(index=version.name)

    async def destroy(self) -> None:
        """Remove all there is under the prefix: every version, the texts and the ledger."""
        names = [*(version.name for version in await self.all()), self.texts, self.ledger]
        await self._client.options(ignore_status=404).indices.delete(index=names, ignore_unavailable=True)
        self._prepared = False
        self.forget()

    async def _move_alias(self, held: Version, version: Version) -> None:
        """Point the alias to another version, if it still points to the one that is ``held``."""
        try:
            await self._patient.indices.update_aliases(
                actions=[
                    {"remove": {"index": held.name, "alias": self.alias, "must_exist": True}},
                    {"add": {"index": version.name, "alias": self.alias}},
                ]
            )
        except NotFoundError:
            # It may also be done already, by a request whose answer was lost.
            serving = await self.serving_now()
            if serving is None or serving.name != version.name:
                raise ConfigError(
                    f"Version {version.number} was dropped, or version {held.number} replaced by another one.",
                    field="version",
                    remedy="See strata index list, and start again.",
                ) from None

    async def _create(
        self,
        name: str,
        mapping: Mapping[str, Any],
        chosen: Mapping[str, Any] | None = None,
        aliases: Sequence[str] = (),
    ) -> bool:
        """Make an index; false when it was there."""
        try:
            await self._client.indices.create(
                index=name,
                settings=chosen or settings(self._layout),
                mappings=mapping,
                aliases={alias: {} for alias in aliases},
            )
        except BadRequestError as error:
            if error.error != "resource_already_exists_exception":
                raise
            return False
        return True

    async def _read(self, pattern: str, seconds: float | None = None) -> list[Version]:
        client = self._clients.within(seconds) if seconds else self._client
        try:
            found = await client.indices.get(index=pattern, filter_path=_WANTED)
        except NotFoundError:
            return []
        versions = [self._version(name, body) for name, body in found.items()]
        return sorted(versions, key=lambda version: version.number)

    def _version(self, name: str, body: Mapping[str, Any]) -> Version:
        try:
            meta = msgspec.convert(body["mappings"]["_meta"], Meta)
        except (KeyError, msgspec.ValidationError):
            meta = None
        if meta is None or meta.format != FORMAT:
            raise ConfigError(
                f"The Elasticsearch index {name} was not written by this version of the product.",
                field="index.elastic.prefix",
                remedy="Choose another prefix and ingest again.",
            )
        chosen = body.get("settings", {}).get("index", {})
        closed = chosen.get("blocks", {}).get("write") == "true"
        return Version(name, meta, self.alias in body.get("aliases", {}), closed, chosen.get("uuid", ""))
