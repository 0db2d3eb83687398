"""The backends that the contract suite runs on."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from contracts.deadline import Deadline
from contracts.filters import account_of
from contracts.ports import NodeMeta, Recalled, RecallQuery
from contracts.ports import WritableIndex as Index
from index.elastic.config import ElasticConfig, LayoutConfig
from index.elastic.index import ElasticIndex
from index.embedded.index import EmbeddedIndex

# What these assert is shown in full, as in a test.
pytest.register_assert_rewrite("tests.contract.corpus", "tests.contract.tenants", "tests.contract.reindex.handbook")


class Backend(Protocol):
    """A kind of index."""

    async def new(self) -> Index:
        """An empty index, open for writing until the test ends."""
        ...

    async def reader(self, index: Index) -> Index:
        """The same index once more, open for reading only, as another process has it."""
        ...

    async def close(self) -> None:
        """Close all that were opened."""
        ...


class EmbeddedBackend:
    """LanceDB and SQLite in a temporary folder."""

    index = EmbeddedIndex

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._opened: dict[Index, Path] = {}

    async def new(self) -> Index:
        return await self._open(self._folder(), write=True)

    async def reader(self, index: Index) -> Index:
        return await self._open(self._opened[index], write=False)

    async def _open(self, folder: Path, *, write: bool) -> Index:
        index = await self.index.open(folder, write=write)
        self._opened[index] = folder
        return index

    async def close(self) -> None:
        for index in self._opened:
            await index.close()


class InMemory(EmbeddedIndex):
    """An embedded index whose readers find every account in memory."""

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        for query in queries:
            await self._search.accounts.ready(account_of(query.condition))
        return await super().recall(queries, deadline)

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        await self._search.accounts.ready(account_id)
        return await super().meta(account_id, uris)


class InMemoryBackend(EmbeddedBackend):
    """The same, as it answers once accounts are in memory."""

    index = InMemory


class ElasticBackend:
    """Elasticsearch, each index under a prefix of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: dict[Index, ElasticIndex] = {}
        self._configs: dict[Index, ElasticConfig] = {}

    async def new(self) -> Index:
        config = ElasticConfig(prefix=f"contract-{uuid4().hex[:12]}", layout=LayoutConfig(shards=2))
        return await self._open(config, write=True)

    async def reader(self, index: Index) -> Index:
        return await self._open(self._configs[index], write=False)

    async def _open(self, config: ElasticConfig, *, write: bool) -> Index:
        index = await ElasticIndex.open(config, [self._url], write=write)
        self._opened[index], self._configs[index] = index, config
        return index

    async def close(self) -> None:
        for index in self._opened.values():
            await index.versions.destroy()
            await index.close()


@pytest.fixture(scope="module", params=["embedded", "in-memory", "elasticsearch"])
async def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    backend: Backend
    if request.param == "elasticsearch":
        backend = ElasticBackend(request.getfixturevalue("elasticsearch_url"))
    else:
        kind = InMemoryBackend if request.param == "in-memory" else EmbeddedBackend
        backend = kind(lambda: tmp_path_factory.mktemp("index"))
    yield backend
    await backend.close()


@pytest.fixture
async def index(backend: Backend) -> Index:
    """An empty index of its own for the test."""
    return await backend.new()


@pytest.fixture(scope="module")
async def shared_index(backend: Backend) -> Index:
    """An index that the examples of a property share; each example keeps to an account of its own."""
    return await backend.new()
