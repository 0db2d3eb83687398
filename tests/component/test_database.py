"""Transactions mean the same on SQLite and on PostgreSQL."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.errors import ConfigError, DatabaseDown
from database.config import DatabaseConfig
from database.engine import Database
from database.tables import switches

ROW = {"name": "web.rag", "enabled": True, "percent": 0, "shadow": False, "updated_at": 0}


async def percent(database: Database, name: str = "web.rag") -> int | None:
    async with database.reading() as connection:
        found: int | None = await connection.scalar(select(switches.c.percent).where(switches.c.name == name))
        return found


async def count(connection: AsyncConnection) -> int:
    return await connection.scalar(select(func.count()).select_from(switches)) or 0


async def test_what_was_written_is_there_for_others(database: Database, database_url: str) -> None:
    async with database.writing() as connection:
        await connection.execute(insert(switches).values(ROW))
    other = await Database.open(database_url, DatabaseConfig())
    assert await percent(other) == 0
    await other.close()


async def test_an_error_rolls_everything_back_and_passes_on(database: Database) -> None:
    with pytest.raises(LookupError):
        async with database.writing() as connection:
            await connection.execute(insert(switches).values(ROW))
            raise LookupError
    assert await percent(database) is None


async def test_a_cancelled_writer_leaves_nothing_and_holds_no_lock(database: Database) -> None:
    begun = asyncio.Event()

    async def write() -> None:
        async with database.writing() as connection:
            await connection.execute(insert(switches).values(ROW))
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with database.writing() as connection:
        assert await count(connection) == 0
        await connection.execute(insert(switches).values(ROW))
    assert await percent(database) == 0


async def test_writers_side_by_side_lose_no_update(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(insert(switches).values(ROW))

    async def add_one() -> None:
        async with database.writing() as connection:
            row = select(switches.c.percent).where(switches.c.name == "web.rag").with_for_update()
            before = await connection.scalar(row)
            await connection.execute(update(switches).values(percent=before + 1))

    await asyncio.gather(*(add_one() for _ in range(20)))
    assert await percent(database) == 20


async def test_a_reader_waits_for_no_writer_and_sees_one_moment(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(insert(switches).values(ROW))
    async with database.reading() as reader:
        assert await count(reader) == 1
        async with database.writing() as writer:
            await writer.execute(delete(switches))
        assert await count(reader) == 1
    assert await percent(database) is None


async def test_a_broken_constraint_is_no_outage_and_shows_no_values(database: Database) -> None:
    with pytest.raises(IntegrityError) as caught:
        async with database.writing() as connection:
            await connection.execute(insert(switches).values(ROW))
            await connection.execute(insert(switches).values(ROW | {"updated_at": 987654321}))
    assert "987654321" not in str(caught.value)


async def test_a_wrong_statement_is_no_outage(database: Database) -> None:
    with pytest.raises(SQLAlchemyError):
        async with database.reading() as connection:
            await connection.execute(text("SELECT nothing FROM nowhere"))


async def test_no_free_connection_in_time_is_an_outage_that_says_so(database_url: str) -> None:
    database = await Database.open(
        database_url, DatabaseConfig(migrate_at_start=True, pool_size=1, timeout_ms=100, connect_timeout_ms=5_000)
    )
    async with database.reading():
        with pytest.raises(DatabaseDown, match="all 1 connections"):
            async with database.reading():
                pass
    async with database.reading():
        pass
    await database.close()


async def test_a_lock_that_does_not_come_free_in_time_is_an_outage(database: Database, database_url: str) -> None:
    async with database.writing() as connection:
        await connection.execute(insert(switches).values(ROW))
    hasty = await Database.open(database_url, DatabaseConfig(timeout_ms=200))
    async with database.writing() as holder:
        await holder.execute(update(switches).values(percent=1))
        with pytest.raises(DatabaseDown) as caught:
            async with hasty.writing() as connection:
                await connection.execute(update(switches).values(percent=2))
    assert caught.value.retryable
    # And afterwards the pool is as good as before.
    async with hasty.writing() as connection:
        await connection.execute(update(switches).values(percent=3))
    assert await percent(database) == 3
    await hasty.close()


async def test_errors_of_the_callers_own_are_left_alone(database: Database) -> None:
    """A time-out of something else within a transaction must not look like an outage of the database."""
    for error in (TimeoutError, ConnectionError):
        with pytest.raises(error):
            async with database.writing():
                raise error


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_sqlite_is_durable_at_each_commit_and_holds_references(database: Database) -> None:
    async with database.writing() as connection:
        found = [
            await connection.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_reading_transaction_of_postgresql_can_not_write(database: Database) -> None:
    with pytest.raises(DatabaseDown, match="ReadOnly"):
        async with database.reading() as connection:
            await connection.execute(insert(switches).values(ROW))


async def test_a_folder_that_can_not_be_made_is_a_setting_to_correct(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        await Database.open(f"sqlite:///{tmp_path}/file/strata.db", DatabaseConfig())
    assert caught.value.field == "database.url"


async def test_a_file_that_is_no_database_is_an_outage_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "strata.db").write_bytes(b"something else, " * 100)
    database = await Database.open(f"sqlite:///{tmp_path}/strata.db", DatabaseConfig())
    with pytest.raises(DatabaseDown, match="NOTADB"):
        await percent(database)
    await database.close()
