"""A worker of the ingest on stand-ins for index and embedder, for unit tests of what the worker does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from contracts.errors import ConfigError
from contracts.ports import Embeddable, Embedded, TextRole, WritableIndex
from contracts.records import ModelRef
from corpora.rag.batch import Outcome
from corpora.rag.documents import SourceChunker
from corpora.rag.worker import IngestWorker
from database.engine import Database
from models.deterministic import DeterministicEmbedder
from tests.support.ingest import Bench


class FakeIndex:
    """The writer's part of an index, in memory; ``refuses`` may raise for a put."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str, str], Embeddable] = {}
        self.puts: list[list[str]] = []
        self.optimized = self.opened = self.closed = 0
        self.refuses: Callable[[list[str]], None] = lambda ids: None
        self.held_by_another = False

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        ids = [item.document.document_id for item in documents]
        self.refuses(ids)
        self.puts.append(ids)
        self.stored |= {(account_id, source_id, item.document.document_id): item for item in documents}

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        for document_id in document_ids:
            self.stored.pop((account_id, source_id, document_id), None)

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        return {
            key[2]: item.document.fingerprint for key, item in self.stored.items() if key[:2] == (account_id, source_id)
        }

    async def optimize(self) -> None:
        self.optimized += 1

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WritableIndex]:
        """As ``OpenWriter``."""
        if self.held_by_another:
            raise ConfigError("Process 7 is writing to the index.", field="index.path")
        self.opened += 1
        yield cast("WritableIndex", self)
        self.closed += 1

    def ids(self) -> list[str]:
        """The ids of what is stored, whoever's."""
        return sorted(key[2] for key in self.stored)


class FakeEmbedder(DeterministicEmbedder):
    """Counts its calls; ``on_call`` is awaited before each."""

    def __init__(self) -> None:
        super().__init__(8)
        self.calls: list[list[str]] = []
        self.on_call: Callable[[Sequence[str]], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        assert role == "passage"
        self.calls.append(list(texts))
        if self.on_call:
            await self.on_call(texts)
        return await super().embed(texts, role)


class Rig(Bench):
    """A queue with a worker on an index in memory."""

    def __init__(self, database: Database, clock: Callable[[], int] | None = None, **settings: Any) -> None:
        super().__init__(database, clock, **settings)
        self.index = FakeIndex()
        self.embedder = FakeEmbedder()
        self.outcomes: list[Outcome] = []
        chunker = SourceChunker(self.config.chunk)
        self.worker = IngestWorker(
            self.jobs, chunker, self.embedder, self.index.open, self.config, self.outcomes.append
        )

    def results(self) -> dict[str, str]:
        """How the last try of each source ended."""
        return {outcome.job.source_id: outcome.result for outcome in self.outcomes}
