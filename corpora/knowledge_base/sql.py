"""Statements that several parts of the knowledge base share."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from database.tables import kb_entities, kb_outbox
from database.upsert import insert_into

# Rows a statement; SQLite takes 32,766 parameters.
PAGE = 500
T = TypeVar("T")
_NEW = {"version": 1, "attempts": 0, "error": "", "claim": "", "claimed_until": 0}


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return int(time.time() * 1000)


async def upsert(connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write whole rows, replacing those with the same key; no key may come twice."""
    for part in pages(rows):
        statement = insert_into(connection, table).values(list(part))
        keys = [column.name for column in table.primary_key]
        changes = {name: statement.excluded[name] for name in part[0] if name not in keys}
        await connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes))


async def touch(connection: AsyncConnection, account_id: str, entity_ids: Collection[str]) -> None:
    """Note that the index is behind on these entities, in the transaction that makes it so."""
    now = now_ms()
    for part in pages(sorted(set(entity_ids))):
        rows = [{"account_id": account_id, "entity_id": each, "due_at": now, **_NEW} for each in part]
        changes = {"version": kb_outbox.c.version + 1, "due_at": now, "attempts": 0, "error": ""}
        statement = insert_into(connection, kb_outbox).values(rows)
        keys = ["account_id", "entity_id"]
        await connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes))


async def known_entities(connection: AsyncConnection, account_id: str, entity_ids: Collection[str]) -> set[str]:
    """Those of the entities that exist; they can't be removed before the transaction ends."""
    found: set[str] = set()
    for part in pages(sorted(set(entity_ids))):
        rows = await connection.scalars(
            select(kb_entities.c.entity_id)
            .where(kb_entities.c.account_id == account_id, kb_entities.c.entity_id.in_(part))
            .order_by(kb_entities.c.entity_id)
            .with_for_update()
        )
        found.update(rows)
    return found


async def advance(connection: AsyncConnection, account_id: str, entity_ids: Collection[str], now: int) -> None:
    """Note that the content of entities has changed, and that the index is behind."""
    for part in pages(sorted(set(entity_ids))):
        await connection.execute(
            kb_entities.update()
            .where(kb_entities.c.account_id == account_id, kb_entities.c.entity_id.in_(part))
            .values(revision=kb_entities.c.revision + 1, updated_at=now)
        )
    await touch(connection, account_id, entity_ids)


def pages(items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """The items in lists of at most ``size``."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
