"""A process that ingests, and ends by SIGKILL at a step: ``python -m tests.support.ingest_child PLACE STEP``."""

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from contracts.ports import WritableIndex
from contracts.records import Document
from corpora.rag.batch import Outcome
from corpora.rag.documents import SourceChunker
from corpora.rag.ingest_rows import now_ms
from corpora.rag.types import SourceDocument
from corpora.rag.worker import IngestWorker, silent
from database.config import DatabaseConfig
from database.engine import Database
from index.chunker import ChunkOptions
from index.elastic.config import ElasticConfig, LayoutConfig
from index.elastic.index import ElasticIndex
from index.embedded.index import EmbeddedIndex
from models.deterministic import DeterministicEmbedder
from tests.support.ingest import ACCOUNT, CORPUS, SPACE, Bench, source

CHUNKER = SourceChunker(ChunkOptions(size=32, overlap=8))
EVERY = "retrieval 检索"


class Place(msgspec.Struct, frozen=True):
    """Where the parts of an ingest lie.

    Args:
        database: URL of the queue's database.
        folder: Of the embedded index; empty for Elasticsearch.
        url: Of a node of Elasticsearch.
        prefix: Of its indices.
    """

    database: str
    folder: str = ""
    url: str = ""
    prefix: str = ""

    async def open_index(self, *, write: bool = True) -> EmbeddedIndex | ElasticIndex:
        """The index, embedded or Elasticsearch."""
        if self.folder:
            return await EmbeddedIndex.open(Path(self.folder), write=write)
        config = ElasticConfig(prefix=self.prefix, layout=LayoutConfig(shards=1))
        return await ElasticIndex.open(config, [self.url], write=write)

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[WritableIndex]:
        """As ``OpenWriter``."""
        index = await self.open_index()
        try:
            yield index
        finally:
            await index.close()

    async def bench(self) -> Bench:
        """The queue, by the real clock, with short leases."""
        database = await Database.open(self.database, DatabaseConfig(migrate_at_start=True))
        return Bench(database, now_ms, lease_s=1.5, poll_s=0.1, idle_s=0.1)

    def worker(self, bench: Bench, told: Callable[[Outcome], None] = silent) -> IngestWorker:
        """A worker on the queue and the index."""
        return IngestWorker(bench.jobs, CHUNKER, DeterministicEmbedder(16), self.writer, bench.config, told)


def text(word: str, sentences: int) -> str:
    """Sentences that all hold ``EVERY``, so that one query finds every node."""
    return " ".join(f"Sentence {number} of {word} is about {EVERY}." for number in range(sentences))


OLD = (source("replaced", text("old", 9)), source("removed", text("old", 9)), source("kept", text("old", 2)))
NEW = (source("first", text("new", 1)), source("second", text("new", 12)), source("replaced", text("new", 5)))
REMOVED = "removed"


def documents(*sources: SourceDocument) -> dict[str, Document]:
    """What the index shall hold of sources, by id."""
    return {each.source_id: CHUNKER.document(CORPUS, each) for each in sources}


def die(*_: object, **__: object) -> None:
    """End as a crash does: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def crash(step: str) -> None:
    """Arrange for the crash at ``before|after module:object.name``."""
    when, _, path = step.partition(" ")
    module, _, name = path.partition(":")
    owner: Any = importlib.import_module(module)
    *parts, last = name.split(".")
    for part in parts:
        owner = getattr(owner, part)
    real: Callable[..., Any] = getattr(owner, last)

    async def after(*args: Any, **named: Any) -> None:
        await real(*args, **named)
        die()

    def after_sync(*args: Any, **named: Any) -> None:
        real(*args, **named)
        die()

    later = after if asyncio.iscoroutinefunction(real) else after_sync
    setattr(owner, last, die if when == "before" else later)


async def main(place: Place, steps: Sequence[str]) -> None:
    """Submit what is new, say so, and work it off."""
    bench = await place.bench()
    if steps:
        crash(steps[0])
    put = await bench.queue.submit(ACCOUNT, CORPUS, NEW)
    print(put.receipt_id, flush=True)
    removal = await bench.queue.submit_deletes(ACCOUNT, CORPUS, SPACE, [REMOVED])
    print(removal.receipt_id, flush=True)
    await place.worker(bench).run()


async def stream(place: Place) -> None:
    """Work all the time while sources are submitted one by one, again and again; each that is acknowledged is said."""
    bench = await place.bench()
    worker = place.worker(bench)
    task = asyncio.create_task(worker.run())
    for number in range(10_000):
        await bench.queue.submit(ACCOUNT, CORPUS, [source(f"s{number % 7}", text(f"round{number}", 4))])
        print(number, flush=True)
        worker.wake()
    await task


if __name__ == "__main__":
    where = msgspec.json.decode(sys.argv[1], type=Place)
    asyncio.run(stream(where) if sys.argv[2] == "stream" else main(where, sys.argv[2:]))
