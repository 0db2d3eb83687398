"""A handbook whose text changes, in an Elasticsearch index that moves to another embedding model."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from contracts.filters import Eq, all_of
from contracts.hits import Relation
from contracts.ports import Embedded, RecallQuery, TextRole, Vectors
from contracts.records import Document, ModelRef, Node
from index.elastic.config import ElasticConfig, LayoutConfig, RecallConfig, WriteConfig
from index.elastic.index import ElasticIndex
from index.elastic.reindex import Reindex
from index.ingest import Ingest
from tests.contract.corpus import ACCOUNT, node, uris

SOURCE = "handbook"
QUERIES = ("how to install", "backup 备份", "node 7", "部署")
WRITE = WriteConfig(settle_seconds=60)
# What an index into which a source was just ingested answers and holds, by model and source.
fresh: dict[Any, Any] = {}


class FakeEmbedder:
    """Vectors by hashing, others for each model; notes what it was asked for, and may be held up."""

    def __init__(self, name: str, dimensions: int = 8) -> None:
        self.model = ModelRef(name, "1", dimensions)
        self.texts: list[str] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    def vector(self, text: str) -> Vectors:
        seed = sha256(f"{self.model.name} {text}".encode()).digest()
        row = np.random.default_rng(list(seed)).standard_normal(self.model.dimensions).astype(np.float32)
        return row / np.linalg.norm(row)

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        if self.before:
            await self.before()
        self.texts += texts
        return Embedded(np.stack([self.vector(text) for text in texts]))


@dataclass
class Handbook:
    """A source of documents that change."""

    parts: dict[str, str]
    source_id: str = SOURCE

    def documents(self) -> Iterator[Document]:
        for name, text in self.parts.items():
            yield Document(name, text, tuple(nodes(name, text)))


def nodes(name: str, text: str) -> Iterator[Node]:
    """A document's nodes: the parent, one with all parts and texts of its own to embed, and plain ones."""
    yield node(name, f"{text}: how to install and deploy", has_children=True, kind="document")
    yield node(
        f"{name}/care",
        f"{text}: backup 备份与部署",
        overview=f"overview of {text}",
        content=f"content of {text} " * 1_500,
        vector_texts=(f"{text} care", f"{text} restore"),
        relations=(Relation(f"strata://shared/{name}", "part of"),),
        tags=("it's", "care"),
        attrs={"lang": ("zh", "en")},
        created_at=7,
    )
    for number in range(6, 8):
        yield node(f"{name}/{number}", f"{text}: node {number}", search_text=f"{text} node {number} 手册")


class Place:
    """One prefix on the shared node, opened as often as needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"reindex-{uuid4().hex[:12]}"
        self._opened: list[ElasticIndex] = []

    async def open(self, *, write: bool = True, **settings: Any) -> ElasticIndex:
        """Another process, as it were."""
        config = ElasticConfig(
            prefix=self.prefix,
            layout=LayoutConfig(shards=2),
            recall=RecallConfig(resolve_seconds=settings.pop("resolve_seconds", 0)),
            write=WriteConfig(**settings),
        )
        self._opened.append(await ElasticIndex.open(config, [self.url], write=write))
        return self._opened[-1]

    async def close(self) -> None:
        await self._opened[0].versions.destroy()
        for index in self._opened:
            await index.close()


async def ingest(index: ElasticIndex, embedder: FakeEmbedder, source: Handbook, account: str = ACCOUNT) -> None:
    report = await Ingest(index, index, embedder).run(account, source)
    assert not report.problems


def reindex(index: ElasticIndex, embedder: FakeEmbedder, write: WriteConfig = WRITE, batch: int = 7) -> Reindex:
    return Reindex(index.client, index.versions, embedder, write, batch)


def asks(embedder: FakeEmbedder, texts: Iterable[str] = QUERIES, account: str = ACCOUNT) -> list[RecallQuery]:
    where = all_of(Eq("account_id", account))
    return [RecallQuery(text, embedder.vector(text), where, 100, embedder.model) for text in texts]


async def answers(index: ElasticIndex, embedder: FakeEmbedder) -> Any:
    """All that an index tells: what it recalls with all scores, and what is read by URI."""
    found = await index.recall(asks(embedder))
    assert not any(answer.failed or answer.partial for answer in found)
    known = sorted(uris(found[0].hits))
    return (
        [
            {hit.uri: (hit.abstract, pytest.approx(hit.vector, abs=1e-5), hit.keyword) for hit in each.hits}
            for each in found
        ],
        await index.meta(ACCOUNT, known),
        await index.read(ACCOUNT, known, "L1"),
        await index.read(ACCOUNT, known, "L2"),
        [await index.edges(ACCOUNT, uri, 10) for uri in known],
        await index.documents(ACCOUNT, SOURCE),
        await index.model(),
    )


async def counts(index: ElasticIndex) -> list[int]:
    """How many nodes and texts there are, of all commits."""
    names = [index.versions.alias, index.versions.texts]
    await index.client.indices.refresh(index=names)
    return [(await index.client.count(index=name))["count"] for name in names]


async def check_fresh(place: Place, index: ElasticIndex, embedder: FakeEmbedder, source: Handbook) -> None:
    """An index answers as one does into which its source was ingested with this model, and holds nothing else."""
    key = (embedder.model, *source.parts.items())
    if key not in fresh:
        elsewhere = Place(place.url)
        other = await elsewhere.open()
        await ingest(other, FakeEmbedder(embedder.model.name, embedder.model.dimensions), source)
        fresh[key] = await answers(other, embedder), await counts(other)
        await elsewhere.close()
    assert (await answers(index, embedder), await counts(index)) == fresh[key]


async def states(index: ElasticIndex) -> dict[int, tuple[bool, bool]]:
    """Of each version whether it serves, and whether it is closed."""
    return {version.number: (version.serving, version.closed) for version in await index.versions.all()}


class Held:
    """Holds up the requests of one index that ``chosen`` picks, until they may go on."""

    def __init__(self, index: ElasticIndex, chosen: Callable[[str, bytes], bool]) -> None:
        self.reached, self._go_on = asyncio.Event(), asyncio.Event()
        self._transport = index.client.transport
        self._send = self._transport.perform_request

        async def perform_request(method: str, target: str, *args: Any, **named: Any) -> Any:
            body = named.get("body")
            sent = (
                b"".join(line if isinstance(line, bytes) else b"" for line in body) if isinstance(body, list) else b""
            )
            if not self._go_on.is_set() and chosen(target, sent):
                self.reached.set()
                await self._go_on.wait()
            return await self._send(method, target, *args, **named)

        self._transport.perform_request = perform_request  # type: ignore[method-assign]

    def go_on(self) -> None:
        self._transport.perform_request = self._send  # type: ignore[method-assign]
        self._go_on.set()
