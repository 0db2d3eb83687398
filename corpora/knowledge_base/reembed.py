"""Bring the knowledge base to another model, while it is searched with the old one (K4).

What is of which model stands in the database: a chunk's ``embedding_model`` and ``embedding_version``. A run does what
is not of the new one yet, so it can be stopped at any time and run again. Two ways, by what the index can do:

- An embedded index holds one model, so each model has a folder of its own: the run writes all entities into the new
  one (:func:`rewrite`), from the texts in the database.
- Elasticsearch has versions of one index: ``index.elastic.reindex`` fills a new one from the old, and swaps; then the
  database is told (:func:`mark_all`).

What changes after the run, before the services are started with the new model, is found by ``OutboxWorker`` at that
start.
"""

from collections.abc import Callable

import msgspec
from sqlalchemy import func, select, update

from contracts.ports import Embedder, WritableIndex
from contracts.records import ModelRef
from corpora.knowledge_base import sql
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.documents import SOURCE
from corpora.knowledge_base.writing import Writing, mark_embedded, published
from database.engine import Database
from database.tables import kb_chunks, kb_entities


class Reembedded(msgspec.Struct):
    """What a run did.

    Args:
        model: Of the vectors now.
        entities: Embedded anew; on Elasticsearch, chunks.
        removed: Dropped from the new index, as they show no longer.
        chunks: Chunks that the database now has as of this model.
    """

    model: ModelRef
    entities: int = 0
    removed: int = 0
    chunks: int = 0


async def rewrite(
    database: Database,
    index: WritableIndex,
    embedder: Embedder,
    config: KnowledgeBaseConfig,
    told: Callable[[int], None] = lambda _: None,
) -> Reembedded:
    """Make an index of the new model hold all that is published.

    Args:
        database: The source of truth.
        index: Empty, or begun by an earlier run.
        embedder: Of the new model.
        config: How much is done at a time.
        told: Told after each round how many entities it embedded.

    Raises:
        ConfigError: The index holds vectors of another model.
        DatabaseDown, StageError: They can't be reached; what is done stays done.
    """
    report = Reembedded(embedder.model)
    write = Writing(embedder, config)
    for account_id in await _accounts(database):
        stored = (await index.documents(account_id, SOURCE)).keys()
        shown = await _published(database, account_id)
        other = await _published(database, account_id, embedder.model)
        for part in sql.pages(sorted((shown - stored) | other), config.outbox.batch):
            written = await write(database, index, account_id, part)
            async with database.writing() as connection:
                await mark_embedded(connection, account_id, written, embedder.model)
            report.entities += len(written)
            report.chunks += sum(len(each.chunks) for each in written.values())
            told(len(written))
        gone = sorted(stored - shown)
        if gone:
            await index.drop(account_id, SOURCE, gone)
        report.removed += len(gone)
    return report


async def mark_all(database: Database, model: ModelRef) -> int:
    """Note that all vectors of the index are of this model by now; returns how many chunks that changes."""
    other = (kb_chunks.c.embedding_model != model.name) | (kb_chunks.c.embedding_version != model.version)
    async with database.writing() as connection:
        count = await connection.scalar(select(func.count()).select_from(kb_chunks).where(other))
        await connection.execute(
            update(kb_chunks).where(other).values(embedding_model=model.name, embedding_version=model.version)
        )
    return count or 0


async def _accounts(database: Database) -> list[str]:
    key = kb_entities.c.account_id
    async with database.reading() as connection:
        return list(await connection.scalars(select(key).distinct().order_by(key)))


async def _published(database: Database, account_id: str, not_of: ModelRef | None = None) -> set[str]:
    query = published(not_of).where(kb_entities.c.account_id == account_id)
    async with database.reading() as connection:
        return {row.entity_id for row in await connection.execute(query)}
