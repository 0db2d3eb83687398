"""The backends that the contract suite runs on."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from contracts.ports import WritableIndex as Index
from index.elastic.config import ElasticConfig, LayoutConfig
from index.elastic.index import ElasticIndex
from index.embedded.index import EmbeddedIndex


class Backend(Protocol):
    """A kind of index."""

    async def new(self) -> Index:
        """An empty index, open for writing until the test ends."""
        ...

    async def close(self) -> None:
        """Close all that were opened."""
        ...


class EmbeddedBackend:
    """LanceDB and SQLite in a temporary folder."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._opened: list[EmbeddedIndex] = []

    async def new(self) -> Index:
        self._opened.append(await EmbeddedIndex.open(self._folder(), write=True))
        return self._opened[-1]

    async def close(self) -> None:
        for index in self._opened:
            await index.close()


class ElasticBackend:
    """Elasticsearch, each index under a prefix of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: list[ElasticIndex] = []

    async def new(self) -> Index:
        config = ElasticConfig(prefix=f"contract-{uuid4().hex[:12]}", layout=LayoutConfig(shards=2))
        self._opened.append(await ElasticIndex.open(config, [self._url], write=True))
        return self._opened[-1]

    async def close(self) -> None:
        for index in self._opened:
            await index.versions.destroy()
            await index.close()


@pytest.fixture(scope="module", params=["embedded", "elasticsearch"])
async def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    backend: Backend
    if request.param == "elasticsearch":
        backend = ElasticBackend(request.getfixturevalue("elasticsearch_url"))
    else:
        backend = EmbeddedBackend(lambda: tmp_path_factory.mktemp("index"))
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
