"""A knowledge base over any index and database, with its worker at hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from contracts.context import RequestContext
from contracts.ports import Embedder, WritableIndex
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.gaps import Gaps
from corpora.knowledge_base.outbox import OutboxWorker
from corpora.knowledge_base.search import HybridSearch
from corpora.knowledge_base.service import KnowledgeBase
from corpora.knowledge_base.store import Store
from corpora.knowledge_base.types import ChunkText, Entity
from database.engine import Database
from models.deterministic import DeterministicEmbedder
from stages.embedder import EmbedderStage
from stages.redaction import RedactionConfig, Redactor
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig

# A busy machine shall degrade nothing by itself.
PATIENT = {"timeout_ms": 60_000, "embed_ms": 20_000, "recall_ms": 30_000}
ACME, RIVAL = RequestContext("acme"), RequestContext("rival")


@dataclass
class Base:
    """The knowledge base and its worker."""

    kb: KnowledgeBase
    worker: OutboxWorker

    async def add(self, entity: Entity, *texts: str, ctx: RequestContext = ACME) -> None:
        """Write an entity with chunks ``<entity id>-0`` and on; the index stays behind."""
        await self.kb.put_entities(ctx, [entity])
        chunks = [ChunkText(f"{entity.entity_id}-{i}", entity.entity_id, text) for i, text in enumerate(texts)]
        await self.kb.upsert_chunks(ctx, chunks)


def base_over(index: WritableIndex, database: Database, embedder: Embedder | None = None, **config: Any) -> Base:
    """A knowledge base on an open index; hashed vectors of 32 dimensions by default."""
    embedder = embedder or DeterministicEmbedder(32)
    settings = KnowledgeBaseConfig.model_validate({**PATIENT, **config})
    store, gaps = Store(database), Gaps(database)
    search = HybridSearch(
        EmbedderStage(embedder),
        SeedSearch(index, SeedSearchConfig(seeds=1000), ScoringConfig()),
        store,
        gaps,
        settings,
        Redactor(RedactionConfig()),
    )

    @asynccontextmanager
    async def writer() -> AsyncIterator[WritableIndex]:
        yield index

    worker = OutboxWorker(database, writer, embedder, settings)
    return Base(KnowledgeBase(search, store, gaps, embedder, settings), worker)
