"""Entities, chunks and assets in SQL: the source of truth. What changes what shows is noted for the index at once.

Rows are locked in one order, so that no two transactions wait for each other: entities, chunks or assets, the outbox,
and each of these by id.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.errors import InvalidInput
from contracts.records import ModelRef
from corpora.knowledge_base import sql
from corpora.knowledge_base.types import Asset, Chunk, ChunkText, Entity, EntityStatus
from database.engine import Database
from database.tables import kb_assets, kb_chunks, kb_entities
from database.upsert import insert_into

# By position in what was given, why a part of it was refused.
Refused = dict[int, InvalidInput]


class Store:
    """The tables of the knowledge base; every row is of one account.

    What it takes has passed ``checks``.

    Args:
        database: Where they are.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    async def put_entities(self, account_id: str, entities: Sequence[Entity]) -> int:
        """Write entities, replacing those of the same id; returns how many are new or have changed."""
        given = {each.entity_id: each for each in sorted(entities, key=lambda each: each.entity_id)}
        async with self.database.writing() as connection:
            old = await _entities(connection, account_id, given)
            changed = [_merged(old.get(name), entity) for name, entity in given.items()]
            rows = [_entity_row(account_id, entity) for entity in changed if entity != old.get(entity.entity_id)]
            for part in sql.pages(rows):
                statement = insert_into(connection, kb_entities).values(part)
                fields = ("type", "status", "name", "attrs", "updated_at")
                changes = {name: statement.excluded[name] for name in fields} | {"revision": kb_entities.c.revision + 1}
                keys = ["account_id", "entity_id"]
                await connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes))
            await sql.touch(connection, account_id, [row["entity_id"] for row in rows])
        return len(rows)

    async def set_status(self, account_id: str, entity_ids: Collection[str], status: EntityStatus) -> set[str]:
        """Publish or withdraw entities, from the next search on; returns those that exist."""
        async with self.database.writing() as connection:
            known = await sql.known_entities(connection, account_id, entity_ids)
            for part in sql.pages(sorted(known)):
                changed = await connection.scalars(
                    kb_entities.update()
                    .where(
                        kb_entities.c.account_id == account_id,
                        kb_entities.c.entity_id.in_(part),
                        kb_entities.c.status != status,
                    )
                    .values(status=status, revision=kb_entities.c.revision + 1)
                    .returning(kb_entities.c.entity_id)
                )
                await sql.touch(connection, account_id, list(changed))
        return known

    async def delete_entities(self, account_id: str, entity_ids: Collection[str]) -> set[str]:
        """Remove entities with their chunks and assets; returns those that existed."""
        async with self.database.writing() as connection:
            known = await sql.known_entities(connection, account_id, entity_ids)
            for part in sql.pages(sorted(known)):
                await connection.execute(
                    kb_entities.delete().where(
                        kb_entities.c.account_id == account_id, kb_entities.c.entity_id.in_(part)
                    )
                )
            await sql.touch(connection, account_id, known)
        return known

    async def put_chunks(
        self, account_id: str, chunks: Sequence[ChunkText], model: ModelRef, *, partial: bool = False
    ) -> Refused:
        """Write chunks, replacing those of the same id.

        Args:
            account_id: The tenant.
            chunks: Of any entities.
            model: What their vectors are made with (K4).
            partial: Whether the rest is written when some are refused.

        Returns:
            What was refused; empty without ``partial``.

        Raises:
            InvalidInput: An entity does not exist, or has not the chunk but another one has.
        """
        async with self.database.writing() as connection:
            return await _put_chunks(connection, account_id, chunks, model, partial=partial)

    async def replace_chunks(
        self, account_id: str, entity_id: str, chunks: Sequence[ChunkText], model: ModelRef
    ) -> None:
        """Make these the chunks of an entity, all others of it gone.

        Raises:
            InvalidInput: The entity does not exist, or another one has one of the chunks.
        """
        async with self.database.writing() as connection:
            await _put_chunks(connection, account_id, chunks, model, partial=False)
            kept = {chunk.chunk_id for chunk in chunks}
            stale = [each for each in await _chunks(connection, account_id, [entity_id]) if each.chunk_id not in kept]
            await _delete_chunks(connection, account_id, stale)

    async def delete_chunks(self, account_id: str, chunk_ids: Collection[str]) -> int:
        """Remove chunks; returns how many there were."""
        async with self.database.writing() as connection:
            found = [
                _chunk(row)
                for part in sql.pages(sorted(set(chunk_ids)))
                for row in await connection.execute(_chunk_rows(account_id).where(kb_chunks.c.chunk_id.in_(part)))
            ]
            await _delete_chunks(connection, account_id, found)
        return len(found)

    async def put_assets(self, account_id: str, assets: Sequence[Asset], *, partial: bool = False) -> Refused:
        """Write assets, replacing those of the same id (K6); as :meth:`put_chunks`."""
        async with self.database.writing() as connection:
            known = await sql.known_entities(connection, account_id, {asset.entity_id for asset in assets})
            refused = {i: _no_entity() for i, asset in enumerate(assets) if asset.entity_id not in known}
            _raise_first(refused, partial=partial)
            rows = {
                asset.asset_id: msgspec.structs.asdict(asset) | {"account_id": account_id}
                for i, asset in enumerate(assets)
                if i not in refused
            }
            await sql.upsert(connection, kb_assets, [row for _, row in sorted(rows.items())])
        return refused

    async def delete_assets(self, account_id: str, asset_ids: Collection[str]) -> None:
        """Remove assets; ids that do not exist are ignored."""
        async with self.database.writing() as connection:
            for part in sql.pages(sorted(set(asset_ids))):
                await connection.execute(
                    kb_assets.delete().where(kb_assets.c.account_id == account_id, kb_assets.c.asset_id.in_(part))
                )

    async def assets(self, account_id: str, entity_id: str, tryon_ready: bool | None = None) -> list[Asset]:
        """The assets of an entity by id, those alone that can be tried on or can't, where asked for (K6)."""
        fields = [kb_assets.c[name] for name in Asset.__struct_fields__]
        query = select(*fields).where(kb_assets.c.account_id == account_id, kb_assets.c.entity_id == entity_id)
        if tryon_ready is not None:
            # Bare on PostgreSQL, ``= 1`` on SQLite: as the partial index is written.
            query = query.where(kb_assets.c.tryon_ready if tryon_ready else ~kb_assets.c.tryon_ready)
        async with self.database.reading() as connection:
            rows = await connection.execute(query.order_by(kb_assets.c.asset_id))
            return [Asset(*row) for row in rows]

    async def entities(self, account_id: str, entity_ids: Collection[str]) -> dict[str, Entity]:
        """Entities by id; those that do not exist are left out."""
        async with self.database.reading() as connection:
            return await _entities(connection, account_id, entity_ids)

    async def chunks(self, account_id: str, entity_id: str) -> list[Chunk]:
        """The chunks of an entity by id."""
        async with self.database.reading() as connection:
            return await _chunks(connection, account_id, [entity_id])

    async def live(
        self, account_id: str, chunk_ids: Collection[str], entity_types: Collection[str]
    ) -> dict[str, tuple[Chunk, Entity]]:
        """Those of the chunks that show now, by id, each with its entity: one statement, one moment (K1).

        Args:
            account_id: The tenant.
            chunk_ids: At most 30,000.
            entity_types: Only entities of one of these; empty for any.
        """
        query = (
            select(*_CHUNK, *_ENTITY)
            .join(
                kb_entities,
                (kb_entities.c.account_id == kb_chunks.c.account_id)
                & (kb_entities.c.entity_id == kb_chunks.c.entity_id),
            )
            .where(
                kb_chunks.c.account_id == account_id,
                kb_chunks.c.chunk_id.in_(chunk_ids),
                kb_entities.c.status == "published",
            )
        )
        if entity_types:
            query = query.where(kb_entities.c.type.in_(entity_types))
        async with self.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        found = [(_chunk(row), Entity(*row[len(_CHUNK) :])) for row in rows]
        return {chunk.chunk_id: (chunk, entity) for chunk, entity in found}


_CHUNK = [kb_chunks.c[name] for name in Chunk.__struct_fields__]
_ENTITY = [kb_entities.c[name] for name in Entity.__struct_fields__]


async def entities_with_chunks(
    connection: AsyncConnection, account_id: str, entity_ids: Collection[str]
) -> dict[str, tuple[Entity, int, list[Chunk]]]:
    """Entities by id, each with its revision and its chunks by id; those that do not exist are left out."""
    result: dict[str, tuple[Entity, int, list[Chunk]]] = {}
    for part in sql.pages(sorted(set(entity_ids))):
        rows = await connection.execute(
            select(*_ENTITY, kb_entities.c.revision).where(
                kb_entities.c.account_id == account_id, kb_entities.c.entity_id.in_(part)
            )
        )
        result |= {row.entity_id: (Entity(*row[:-1]), row.revision, []) for row in rows}
        for chunk in await _chunks(connection, account_id, part):
            result[chunk.entity_id][2].append(chunk)
    return result


async def _put_chunks(
    connection: AsyncConnection, account_id: str, chunks: Sequence[ChunkText], model: ModelRef, *, partial: bool
) -> Refused:
    known = await sql.known_entities(connection, account_id, {chunk.entity_id for chunk in chunks})
    old: dict[str, Chunk] = {}
    for part in sql.pages(sorted({chunk.chunk_id for chunk in chunks})):
        rows = await connection.execute(_chunk_rows(account_id).where(kb_chunks.c.chunk_id.in_(part)))
        old |= {row.chunk_id: _chunk(row) for row in rows}
    owners = {chunk_id: chunk.entity_id for chunk_id, chunk in old.items()}
    refused: Refused = {}
    new: dict[str, Chunk] = {}
    for position, given in enumerate(chunks):
        if given.entity_id not in known:
            refused[position] = _no_entity()
        elif owners.setdefault(given.chunk_id, given.entity_id) != given.entity_id:
            refused[position] = InvalidInput("Another entity has this chunk.", field="chunk_id")
        else:
            new[given.chunk_id] = Chunk(
                given.chunk_id, given.entity_id, given.text, given.chunk_type, model.name, model.version
            )
    _raise_first(refused, partial=partial)
    changed = [chunk for chunk_id, chunk in sorted(new.items()) if old.get(chunk_id) != chunk]
    await sql.upsert(
        connection, kb_chunks, [msgspec.structs.asdict(chunk) | {"account_id": account_id} for chunk in changed]
    )
    await sql.advance(connection, account_id, {chunk.entity_id for chunk in changed}, sql.now_ms())
    return refused


async def _delete_chunks(connection: AsyncConnection, account_id: str, chunks: Sequence[Chunk]) -> None:
    for part in sql.pages(chunks):
        ids = [chunk.chunk_id for chunk in part]
        await connection.execute(
            kb_chunks.delete().where(kb_chunks.c.account_id == account_id, kb_chunks.c.chunk_id.in_(ids))
        )
    await sql.advance(connection, account_id, {chunk.entity_id for chunk in chunks}, sql.now_ms())


async def _entities(connection: AsyncConnection, account_id: str, entity_ids: Collection[str]) -> dict[str, Entity]:
    found: dict[str, Entity] = {}
    for part in sql.pages(sorted(set(entity_ids))):
        rows = await connection.execute(
            select(*_ENTITY)
            .where(kb_entities.c.account_id == account_id, kb_entities.c.entity_id.in_(part))
            .order_by(kb_entities.c.entity_id)
        )
        found |= {row.entity_id: Entity(*row) for row in rows}
    return found


async def _chunks(connection: AsyncConnection, account_id: str, entity_ids: Collection[str]) -> list[Chunk]:
    rows = await connection.execute(
        _chunk_rows(account_id).where(kb_chunks.c.entity_id.in_(entity_ids)).order_by(kb_chunks.c.chunk_id)
    )
    return [_chunk(row) for row in rows]


def _chunk_rows(account_id: str) -> Select[Any]:
    return select(*_CHUNK).where(kb_chunks.c.account_id == account_id)


def _chunk(row: Row[Any]) -> Chunk:
    return Chunk(*row[: len(_CHUNK)])


def _merged(old: Entity | None, new: Entity) -> Entity:
    """What is to be stored: without a time of its own it changed now, unless its content is as it was."""
    if new.updated_at:
        return new
    same = old is not None and (old.type, old.name, old.attrs) == (new.type, new.name, new.attrs)
    return msgspec.structs.replace(new, updated_at=old.updated_at if old and same else sql.now_ms())


def _entity_row(account_id: str, entity: Entity) -> dict[str, Any]:
    # A revision that no earlier entity of the same id has had.
    return msgspec.structs.asdict(entity) | {"account_id": account_id, "revision": sql.now_ms()}


def _no_entity() -> InvalidInput:
    return InvalidInput("There is no such entity.", field="entity_id", remedy="Write the entity first.")


def _raise_first(refused: Refused, *, partial: bool) -> None:
    if refused and not partial:
        raise refused[min(refused)]
