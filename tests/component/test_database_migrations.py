"""The chain of revisions on both dialects."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, select, text

from contracts.errors import ConfigError, DatabaseDown, InvalidInput
from database import migrate
from database.config import DatabaseConfig
from database.connect import make_engine
from database.engine import Database
from database.tables import metadata
from database.target import Target
from tests.support.database import filled, rows

CONFIG = DatabaseConfig()
OPEN = """
import asyncio, sys
from database.config import DatabaseConfig
from database.engine import Database

async def main():
    sys.stdin.read(1)
    database = await Database.open(sys.argv[1], DatabaseConfig(migrate_at_start=True, timeout_ms=30_000))
    async with database.reading():
        await database.close()

asyncio.run(main())
"""


@pytest.fixture
def target(database_url: str) -> Target:
    return Target.parse(database_url)


async def tables(target: Target) -> set[str]:
    engine = make_engine(target, CONFIG, migrating=True)
    async with engine.connect() as connection:
        found = set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))
    await engine.dispose()
    return found - {"alembic_version"}


async def shape(target: Target) -> dict[str, list[object]]:
    """Constraints and indexes of all tables, with their names."""

    def plain(described: Mapping[str, Any]) -> str:
        return str({key: value for key, value in described.items() if key != "dialect_options"})

    def read(connection: Connection) -> dict[str, list[object]]:
        found = inspect(connection)
        kinds = (found.get_check_constraints, found.get_unique_constraints, found.get_foreign_keys, found.get_indexes)
        return {
            table: [found.get_pk_constraint(table)["name"], *(sorted(map(plain, kind(table))) for kind in kinds)]
            for table in metadata.tables
        }

    engine = make_engine(target, CONFIG, migrating=True)
    async with engine.connect() as connection:
        shapes = await connection.run_sync(read)
    await engine.dispose()
    return shapes


async def test_the_revisions_make_the_tables_that_the_code_has(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, metadata))

    async with database.reading() as connection:
        assert await connection.run_sync(differences) == []


async def test_constraints_and_indexes_are_called_in_the_revisions_as_in_the_code(target: Target) -> None:
    """A later revision changes them by name; comparing metadata does not see the names of all of them."""
    await migrate.upgrade(target, CONFIG)
    migrated = await shape(target)
    await migrate.downgrade(target, CONFIG, migrate.BASE)
    engine = make_engine(target, CONFIG, migrating=True)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    assert migrated == await shape(target)


async def test_up_down_and_up_again_with_data_at_each_revision(target: Target) -> None:
    """Rows of older tables live on while newer ones come and go."""
    assert await migrate.upgrade(target, CONFIG) == (migrate.BASE, migrate.head())
    await filled(target)
    before = await rows(target)
    for revision in reversed(migrate.revisions()):
        await migrate.downgrade(target, CONFIG, revision)
        assert await migrate.current(target, CONFIG) == revision
    survivors = await rows(target)
    assert survivors
    assert {table: before[table] for table in survivors} == survivors
    await migrate.upgrade(target, CONFIG)
    assert {table: kept for table, kept in (await rows(target)).items() if table in survivors} == survivors
    await migrate.downgrade(target, CONFIG, migrate.BASE)
    assert await tables(target) == set()
    await migrate.upgrade(target, CONFIG)
    assert await tables(target) == set(metadata.tables)


async def test_an_upgrade_of_what_is_up_to_date_changes_nothing(target: Target) -> None:
    await migrate.upgrade(target, CONFIG)
    await filled(target)
    before = await rows(target)
    assert await migrate.upgrade(target, CONFIG) == (migrate.head(), migrate.head())
    assert await rows(target) == before


async def test_a_failing_migration_leaves_nothing_behind(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade = migrate.command.upgrade

    def and_then_fail(config: object, revision: str) -> None:
        upgrade(config, revision)  # type: ignore[arg-type]
        raise LookupError

    monkeypatch.setattr(migrate.command, "upgrade", and_then_fail)
    with pytest.raises(LookupError):
        await migrate.upgrade(target, CONFIG)
    assert await tables(target) == set()
    assert await migrate.current(target, CONFIG) == migrate.BASE


async def test_processes_that_start_at_once_migrate_once(database_url: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPEN, database_url, stdin=-1, stderr=-1, cwd=Path(__file__).parents[2]
        )
        for _ in range(4)
    ]
    ends = await asyncio.gather(*(process.communicate(b"x") for process in processes))
    assert [process.returncode for process in processes] == [0] * 4, [stderr.decode() for _, stderr in ends]
    assert await migrate.current(Target.parse(database_url), CONFIG) == migrate.head()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_postgresql_that_is_behind_is_refused_with_the_command(database_url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await Database.open(database_url, CONFIG)
    assert "strata db upgrade" in caught.value.remedy
    assert await tables(Target.parse(database_url)) == set()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_sqlite_brings_itself_up_to_date(database_url: str) -> None:
    database = await Database.open(database_url, CONFIG)
    async with database.reading() as connection:
        assert await connection.run_sync(migrate.current_of) == migrate.head()
    await database.close()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(
    database: Database, database_url: str, target: Target
) -> None:
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (
        Database.open(database_url, DatabaseConfig(migrate_at_start=True)),
        migrate.upgrade(target, CONFIG),
        migrate.downgrade(target, CONFIG, migrate.BASE),
    ):
        with pytest.raises(ConfigError, match="ahead: at revision 9999") as caught:
            await refused
        assert f"strata db downgrade {migrate.head()}" in caught.value.remedy
    assert await tables(target) == set(metadata.tables)


async def test_a_revision_that_does_not_exist_is_refused_with_those_that_do(target: Target) -> None:
    with pytest.raises(InvalidInput) as caught:
        await migrate.downgrade(target, CONFIG, "0815")
    assert migrate.head() in caught.value.remedy


async def test_down_to_a_newer_revision_is_refused(target: Target) -> None:
    with pytest.raises(InvalidInput, match="before"):
        await migrate.downgrade(target, CONFIG, migrate.head())


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_migration_does_not_wait_long_for_a_table_in_use(database: Database, target: Target) -> None:
    """While it waits, everybody else would wait behind it."""
    async with database.reading() as connection:
        await connection.execute(select(metadata.tables["switches"]))
        with pytest.raises(DatabaseDown, match="LockNotAvailable"):
            await migrate.downgrade(target, DatabaseConfig(timeout_ms=100), migrate.BASE)
    assert await tables(target) == set(metadata.tables)
