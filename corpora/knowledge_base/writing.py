"""From entities in the database to their documents in the index, and of which model those are (K4)."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import Select, exists, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.ports import Embeddable, Embedder, WritableIndex
from contracts.records import Document, ModelRef
from corpora.knowledge_base import sql
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.documents import SOURCE, document
from corpora.knowledge_base.store import entities_with_chunks
from corpora.knowledge_base.types import Chunk
from database.engine import Database
from database.tables import kb_chunks, kb_entities
from index.embedding import embed_nodes, embedding_texts


class Written(msgspec.Struct, frozen=True):
    """What the index has of an entity: as it was at a revision, these chunks."""

    revision: int
    chunks: list[Chunk]


class Writing:
    """Makes an index hold what the database has of some entities.

    Args:
        embedder: Makes the vectors; its model must be that of the index.
        config: Which attributes go into the index, and how much is done at a time.
    """

    def __init__(self, embedder: Embedder, config: KnowledgeBaseConfig) -> None:
        self._embedder = embedder
        self._config = config

    async def __call__(
        self, database: Database, index: WritableIndex, account_id: str, entity_ids: Sequence[str]
    ) -> dict[str, Written]:
        """Bring the index up to date; returns what it now has, by entity."""
        async with database.reading() as connection:
            found = await entities_with_chunks(connection, account_id, entity_ids)
        written: dict[str, Written] = {}
        documents: list[Document] = []
        for entity_id, (entity, revision, chunks) in found.items():
            if made := document(entity, chunks, self._config):
                documents.append(made)
                written[entity_id] = Written(revision, chunks)
        if documents:
            texts = [
                embedding_texts(node.name, node.abstract, node.vector_texts)
                for each in documents
                for node in each.nodes
            ]
            size = self._config.outbox.embed_texts
            vectors, _ = await embed_nodes(self._embedder, texts, size, lambda _: None)
            parts = np.split(vectors, np.cumsum([len(each.nodes) for each in documents])[:-1])
            ready = [Embeddable(each, part) for each, part in zip(documents, parts, strict=True)]
            await index.put(account_id, SOURCE, ready, self._embedder.model)
        if gone := sorted(set(entity_ids) - written.keys()):
            await index.drop(account_id, SOURCE, gone)
        return written


async def mark_embedded(
    connection: AsyncConnection, account_id: str, written: dict[str, Written], model: ModelRef
) -> None:
    """Note of which model the vectors of chunks in the index are (K4); of an entity that has changed since, nothing."""
    mark = {
        entity_id: was
        for entity_id, was in written.items()
        if any((each.embedding_model, each.embedding_version) != (model.name, model.version) for each in was.chunks)
    }
    # Locked as all lock them: the entities first, in order.
    await sql.known_entities(connection, account_id, mark.keys())
    for entity_id, was in mark.items():
        unchanged = exists().where(
            kb_entities.c.account_id == account_id,
            kb_entities.c.entity_id == entity_id,
            kb_entities.c.revision == was.revision,
        )
        await connection.execute(
            update(kb_chunks)
            .where(kb_chunks.c.account_id == account_id, kb_chunks.c.entity_id == entity_id, unchanged)
            .values(embedding_model=model.name, embedding_version=model.version)
        )


async def note_published(database: Database, model: ModelRef | None) -> int:
    """Note published entities, so that they are embedded anew (K4).

    Args:
        database: The source of truth.
        model: Only those that have a chunk of another model or version; ``None`` for all that have chunks.

    Returns:
        How many.
    """
    async with database.reading() as connection:
        found = (await connection.execute(published(model))).all()
    by_account: dict[str, list[str]] = {}
    for account_id, entity_id in found:
        by_account.setdefault(account_id, []).append(entity_id)
    for account_id, entity_ids in by_account.items():
        for part in sql.pages(entity_ids):
            async with database.writing() as connection:
                await sql.touch(connection, account_id, part)
    return len(found)


def published(not_of: ModelRef | None = None) -> Select[Any]:
    """Account and id of the published entities that have chunks, in order.

    Args:
        not_of: Only those that have a chunk of another model or version.
    """
    key = (kb_entities.c.account_id, kb_entities.c.entity_id)
    query = (
        select(*key)
        .join(kb_chunks, (kb_chunks.c.account_id == key[0]) & (kb_chunks.c.entity_id == key[1]))
        .where(kb_entities.c.status == "published")
        .distinct()
        .order_by(*key)
    )
    if not_of is None:
        return query
    name, version = kb_chunks.c.embedding_model, kb_chunks.c.embedding_version
    return query.where((name != not_of.name) | (version != not_of.version))
