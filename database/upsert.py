"""The one statement that differs between the dialects."""

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def insert_into(connection: AsyncConnection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT of the connection's dialect, which has ``on_conflict_do_update`` on both."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
