"""PostgreSQL that stops, hangs or refuses: callers get a DatabaseDown, soon, and all is well once it is back."""

import asyncio

import pytest
from sqlalchemy import insert, select, text

from contracts.errors import ConfigError, DatabaseDown
from database.config import DatabaseConfig
from database.engine import Database
from database.tables import switches
from tests.support.postgres import PASSWORD, Postgres

CONFIG = DatabaseConfig(migrate_at_start=True, connect_timeout_ms=2_000, timeout_ms=2_000)


async def write(database: Database, name: str) -> None:
    async with database.writing() as connection:
        row = {"name": name, "enabled": True, "percent": 0, "shadow": False, "updated_at": 0}
        await connection.execute(insert(switches).values(row))


async def names(database: Database) -> set[str]:
    async with database.reading() as connection:
        return set(await connection.scalars(select(switches.c.name)))


async def test_a_server_that_stops_in_the_middle_and_comes_back(own_postgres: Postgres) -> None:
    """Nothing acknowledged is lost, nothing failed was written, and old connections do no harm."""
    database = await Database.open(own_postgres.url, CONFIG)
    await write(database, "before")
    with pytest.raises(DatabaseDown):
        async with database.writing() as connection:
            row = {"name": "half", "enabled": True, "percent": 0, "shadow": False, "updated_at": 0}
            await connection.execute(insert(switches).values(row))
            await asyncio.to_thread(own_postgres.stop)
            await connection.execute(select(switches.c.name))
    with pytest.raises(DatabaseDown) as caught:
        await write(database, "during")
    assert caught.value.retryable
    assert PASSWORD not in str(caught.value)
    await asyncio.to_thread(own_postgres.start)
    await write(database, "after")
    assert await names(database) == {"before", "after"}
    await database.close()


async def test_connections_that_a_restart_closed_are_replaced_unseen(own_postgres: Postgres) -> None:
    database = await Database.open(own_postgres.url, CONFIG)
    async with database.reading(), database.reading():
        pass
    await asyncio.to_thread(own_postgres.stop)
    await asyncio.to_thread(own_postgres.start)
    async with database.writing() as one, database.writing() as other:
        assert [await connection.scalar(text("SELECT 1")) for connection in (one, other)] == [1, 1]
    await database.close()


async def test_a_server_that_hangs_is_given_up_in_time_and_used_again_later(own_postgres: Postgres) -> None:
    database = await Database.open(own_postgres.url, DatabaseConfig(migrate_at_start=True, timeout_ms=300))
    await write(database, "before")
    own_postgres.pause()
    try:
        for _ in range(2):
            with pytest.raises(DatabaseDown):
                await names(database)
        with pytest.raises(DatabaseDown):
            await write(database, "during")
    finally:
        own_postgres.resume()
    assert await names(database) == {"before"}
    await database.close()


async def test_closing_does_not_wait_for_a_server_that_hangs(own_postgres: Postgres) -> None:
    database = await Database.open(own_postgres.url, CONFIG)
    own_postgres.pause()
    try:
        await database.close()
    finally:
        own_postgres.resume()


async def test_a_database_that_is_down_is_opened_and_checked_once_it_answers(own_postgres: Postgres) -> None:
    """A process starts without its database, and no unchecked table is touched."""
    await asyncio.to_thread(own_postgres.stop)
    database = await Database.open(own_postgres.url, DatabaseConfig())
    with pytest.raises(DatabaseDown):
        await names(database)
    await asyncio.to_thread(own_postgres.start)
    with pytest.raises(ConfigError, match="behind"):
        await names(database)
    await database.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [(PASSWORD, "wrong-hush"), ("/postgres", "/nothing"), ("strata:", "stranger:")],
)
async def test_a_refused_login_says_what_to_check_and_shows_no_password(postgres_url: str, old: str, new: str) -> None:
    database = await Database.open(postgres_url.replace(old, new), CONFIG)
    with pytest.raises(DatabaseDown) as caught:
        await names(database)
    assert "password" in caught.value.remedy
    shown = f"{caught.value!s} {caught.value!r} {database!r} {caught.value.__cause__}"
    assert "hush" not in shown
    await database.close()


async def test_a_statement_that_takes_too_long_ends_and_spoils_nothing(postgres_url: str) -> None:
    database = await Database.open(postgres_url, DatabaseConfig(migrate_at_start=True, timeout_ms=200, pool_size=1))
    for _ in range(2):
        with pytest.raises(DatabaseDown, match="TimeoutError"):
            async with database.reading() as connection:
                await connection.execute(text("SELECT pg_sleep(60)"))
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1
    await database.close()
