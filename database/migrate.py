"""Tables brought from one revision to another: all the way or not at all, and by one process at a time."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select, text

from contracts.errors import ConfigError, InvalidInput
from database.config import DatabaseConfig
from database.connect import WRITES, down, make_engine
from database.target import Target

# The revision before the first: no tables.
BASE = "base"
# Of PostgreSQL's advisory locks, which are numbers; one that nobody else is likely to take.
_LOCK = 7_285_391_204_618_253
# Alembic keeps the migration that runs in a global.
_running = asyncio.Lock()

Result = TypeVar("Result")


@cache
def revisions() -> tuple[str, ...]:
    """All revisions that this version knows, oldest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return tuple(reversed([script.revision for script in scripts]))


def head() -> str:
    """The revision that this version needs."""
    return revisions()[-1]


def current_of(connection: Connection) -> str:
    """The revision of a database; ``BASE`` when nothing is there yet."""
    return MigrationContext.configure(connection).get_current_revision() or BASE


def refuse_unless_head(target: Target, current: str) -> None:
    """Check that a database is at the revision that this version needs.

    Raises:
        ConfigError: It is behind or ahead; the remedy is a command.
    """
    _refuse_ahead(target, current)
    if current != head():
        raise ConfigError(
            f"The database {target} is behind: at revision {current}, while this version of Strata needs {head()}.",
            field="database",
            remedy="Run: strata db upgrade",
        )


async def current(target: Target, config: DatabaseConfig) -> str:
    """The revision of a database; ``BASE`` when nothing is there yet.

    Raises:
        DatabaseDown: It can't be asked.
    """
    if target.absent:
        return BASE
    engine = make_engine(target, config)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(current_of)
    except OSError as error:
        raise down(target, type(error).__name__) from None
    finally:
        await engine.dispose()


async def upgrade(target: Target, config: DatabaseConfig) -> tuple[str, str]:
    """Bring a database to the revision that this version needs.

    Where several processes call this at once, one does it and the others wait.

    Returns:
        The revisions before and after.

    Raises:
        ConfigError: The database is ahead: a newer version made its tables.
        DatabaseDown: It can't be asked, or a table is in use for longer than ``timeout_ms``; nothing was changed.
    """

    def change(connection: Connection) -> tuple[str, str]:
        before = current_of(connection)
        _refuse_ahead(target, before)
        if before != head():
            command.upgrade(_config(connection), head())
        return before, head()

    return await _alone(target, config, change)


async def downgrade(target: Target, config: DatabaseConfig, revision: str) -> tuple[str, str]:
    """Take a database back to an older revision; what only newer tables and columns held is lost.

    Args:
        target: The database.
        config: Time-outs.
        revision: One of :func:`revisions`, or ``BASE`` for no tables at all.

    Returns:
        The revisions before and after.

    Raises:
        InvalidInput: There is no such revision, or the database is at an older one.
        ConfigError: The database is ahead: a newer version made its tables.
        DatabaseDown: It can't be asked, or a table is in use for longer than ``timeout_ms``; nothing was changed.
    """
    order = (BASE, *revisions())
    if revision not in order:
        raise InvalidInput(
            f"There is no revision {revision}.", field="revision", remedy=f"Choose one of {', '.join(order)}."
        )

    def change(connection: Connection) -> tuple[str, str]:
        before = current_of(connection)
        _refuse_ahead(target, before)
        if order.index(revision) > order.index(before):
            raise InvalidInput(f"The database is at {before}, before {revision}.", field="revision")
        command.downgrade(_config(connection), revision)
        return before, revision

    return await _alone(target, config, change)


async def _alone(target: Target, config: DatabaseConfig, work: Callable[[Connection], Result]) -> Result:
    """Do something in one transaction, which no other process does at the same time."""
    engine = make_engine(target, config, migrating=True)
    try:
        async with _running, engine.execution_options(**{WRITES: True}).begin() as connection:
            if target.dialect == "postgresql":
                await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
                # A change that waits for a busy table holds up all others that want the table: not for long, then.
                await connection.execute(text(f"SET LOCAL lock_timeout = {config.timeout_ms}"))
            result = await connection.run_sync(work)
            if target.dialect == "sqlite" and (await connection.execute(text("PRAGMA foreign_key_check"))).first():
                raise ConfigError(f"The migration would leave broken references in {target}.", field="database")
            return result
    except OSError as error:
        raise down(target, type(error).__name__) from None
    finally:
        await engine.dispose()


def _refuse_ahead(target: Target, current: str) -> None:
    if current not in {BASE, *revisions()}:
        raise ConfigError(
            f"The database {target} is ahead: at revision {current}, which this version of Strata does not know.",
            field="database",
            remedy=f"Install the newer version, or take the database back with it: strata db downgrade {head()}",
        )


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "database:migrations")
    return config
