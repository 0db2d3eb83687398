"""Index versions: each holds the vectors of one model, and an alias says which one serves (design decision 9)."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from elasticsearch import AsyncElasticsearch, BadRequestError, NotFoundError

from contracts.errors import ConfigError
from contracts.records import ModelRef
from index.elastic.config import LayoutConfig
from index.elastic.mapping import FORMAT, LEDGER, TEXTS, Meta, nodes_mapping, nodes_settings, settings


class Version(msgspec.Struct, frozen=True):
    """An index version.

    Args:
        name: Of the Elasticsearch index.
        meta: What it holds.
        serving: Whether searches and writes go to it.
    """

    name: str
    meta: Meta
    serving: bool

    @property
    def number(self) -> int:
        """From 1; also the end of its name."""
        return int(self.name.rpartition("-")[2])


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
        prefix: Of all index names.
        layout: Of versions made from now on.
        resolve_seconds: How long the serving version is taken for granted.
    """

    def __init__(self, client: AsyncElasticsearch, prefix: str, layout: LayoutConfig, resolve_seconds: float) -> None:
        self._client = client
        self._layout = layout
        self._resolve_seconds = resolve_seconds
        self._known: tuple[float, Version | None] | None = None
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
        self._known = (time.monotonic(), version)
        return version

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
        """
        await self.prepare()
        meta = Meta(model, routed=self._layout.routing == "account")
        versions = await self.all()
        name = f"{self.alias}-{versions[-1].number + 1 if versions else 1:06d}"
        first = serve and not any(version.serving for version in versions)
        made = await self._create(name, nodes_mapping(meta, self._layout), nodes_settings(self._layout), first)
        self.forget()
        if not made:
            # Another writer was faster: its version is as good, if it holds the same.
            return await self.get(int(name[-6:]))
        version = Version(name, meta, serving=first)
        return await self.swap(version) if serve and not first else version

    async def prepare(self) -> None:
        """Make the indices that all versions share, where they are missing."""
        if not self._prepared:
            await self._create(self.texts, TEXTS)
            await self._create(self.ledger, LEDGER)
            self._prepared = True

    async def swap(self, version: Version) -> Version:
        """Let a version serve in place of another, in one step."""
        await self._client.indices.update_aliases(
            actions=[
                {"remove": {"index": f"{self.alias}-*", "alias": self.alias, "must_exist": False}},
                {"add": {"index": version.name, "alias": self.alias, "is_write_index": True}},
            ]
        )
        self.forget()
        return msgspec.structs.replace(version, serving=True)

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

    async def _create(
        self, name: str, mapping: Mapping[str, Any], chosen: Mapping[str, Any] | None = None, serve: bool = False
    ) -> bool:
        """Make an index; false when it was there."""
        try:
            await self._client.indices.create(
                index=name,
                settings=chosen or settings(self._layout),
                mappings=mapping,
                aliases={self.alias: {}} if serve else None,
            )
        except BadRequestError as error:
            if error.error != "resource_already_exists_exception":
                raise
            return False
        return True

    async def _read(self, pattern: str, seconds: float | None = None) -> list[Version]:
        client = self._client.options(request_timeout=seconds) if seconds else self._client
        try:
            found = await client.indices.get(index=pattern, filter_path="*.aliases,*.mappings._meta")
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
        return Version(name, meta, serving=self.alias in body.get("aliases", {}))
