"""Rows in every table, made from the tables themselves, so that new tables are covered as they come."""

from typing import Any

from sqlalchemy import Column, inspect, select
from sqlalchemy.types import JSON, Boolean, Integer, LargeBinary, String

from database.config import DatabaseConfig
from database.connect import make_engine
from database.tables import metadata
from database.target import Target

# Columns that take certain values only.
_CHOSEN = {"kb_entities.status": "draft"}
_VALUES: dict[type, Any] = {Boolean: True, Integer: 1, String: "1", LargeBinary: b"1", JSON: {"a": 1}}


async def filled(target: Target) -> None:
    """Put one row into each table; rows that refer to others refer to that of theirs."""
    engine = make_engine(target, DatabaseConfig(), migrating=True)
    async with engine.begin() as connection:
        for table in metadata.sorted_tables:
            await connection.execute(table.insert().values({column.name: _value(column) for column in table.columns}))
    await engine.dispose()


async def rows(target: Target) -> dict[str, list[tuple[Any, ...]]]:
    """What is in the tables that there are now."""
    engine = make_engine(target, DatabaseConfig(), migrating=True)
    found = {}
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        for table in metadata.sorted_tables:
            if table.name in names:
                found[table.name] = [tuple(row) for row in await connection.execute(select(table))]
    await engine.dispose()
    return found


def _value(column: Column[Any]) -> Any:
    if chosen := _CHOSEN.get(f"{column.table.name}.{column.name}"):
        return chosen
    return next(value for kind, value in _VALUES.items() if isinstance(column.type, kind))
