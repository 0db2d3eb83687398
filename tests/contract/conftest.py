"""The backends that the contract suite runs on."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import pytest

from contracts.ports import ContentStore, IndexWriter, IngestJournal, RelationStore, SearchIndex
from index.embedded.index import EmbeddedIndex


class Index(SearchIndex, ContentStore, RelationStore, IndexWriter, IngestJournal, Protocol):
    """All that a backend offers, in one object."""


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


@pytest.fixture(scope="module", params=["embedded"])
async def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    backend = {"embedded": EmbeddedBackend}[request.param](lambda: tmp_path_factory.mktemp("index"))
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
