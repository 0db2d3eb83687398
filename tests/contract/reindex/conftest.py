"""Two models, a handbook, and an index into which it was ingested with the first of them."""

from collections.abc import AsyncIterator

import pytest

from index.elastic.index import ElasticIndex
from tests.contract.reindex.handbook import FakeEmbedder, Handbook, Place, ingest


@pytest.fixture
async def place(elasticsearch_url: str) -> AsyncIterator[Place]:
    place = Place(elasticsearch_url)
    yield place
    await place.close()


@pytest.fixture
def old() -> FakeEmbedder:
    return FakeEmbedder("old")


@pytest.fixture
def new() -> FakeEmbedder:
    return FakeEmbedder("new", 12)


@pytest.fixture
def handbook() -> Handbook:
    return Handbook({f"doc{number}": f"text {number}" for number in range(10)})


@pytest.fixture
async def index(place: Place, old: FakeEmbedder, handbook: Handbook) -> ElasticIndex:
    index = await place.open()
    await ingest(index, old, handbook)
    return index
