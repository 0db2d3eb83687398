"""Engines of SQLAlchemy for both dialects, and the errors of both drivers as the product's own."""

from contextlib import suppress
from pathlib import Path
from sqlite3 import SQLITE_CONSTRAINT, SQLITE_ERROR, SQLITE_MISMATCH, SQLITE_RANGE, SQLITE_TOOBIG
from typing import Any

from sqlalchemy import URL, Connection, NullPool, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from contracts.errors import ConfigError, DatabaseDown
from database.config import DatabaseConfig
from database.target import Target

# Execution option of a transaction that is going to write.
WRITES = "strata_writes"

# Statements of ours that are wrong, by SQLite's primary result code; any other code is the database's trouble.
_OUR_FAULT = {SQLITE_ERROR, SQLITE_CONSTRAINT, SQLITE_MISMATCH, SQLITE_RANGE, SQLITE_TOOBIG}
# The database's trouble, by start of the SQLSTATE: connection, a standby after a failover, login, no such database,
# transaction rolled back, resources, object in use, operator, system, internal. Any other is a statement of ours.
_ITS_FAULT = ("08", "25006", "28", "3D", "40", "53", "55", "57", "58", "XX")
_REFUSED = ("28", "3D")


def make_engine(target: Target, config: DatabaseConfig, *, migrating: bool = False) -> AsyncEngine:
    """Make an engine; nothing is connected yet.

    Args:
        target: The database.
        config: Size of the pool and time-outs.
        migrating: For changes of tables: statements may take long, and SQLite's foreign keys are off, because a table
            that is rebuilt is dropped for a moment.
    """
    engine = (
        _sqlite(target, config, migrating) if target.dialect == "sqlite" else _postgresql(target, config, migrating)
    )

    @event.listens_for(engine.sync_engine, "handle_error")
    def translate(context: ExceptionContext) -> None:
        error = context.original_exception
        if isinstance(error, TimeoutError):
            # What comes next on this connection may be the answer that came too late.
            context.is_disconnect = True
            context.invalidate_pool_on_disconnect = False
        if why := _why_down(context.sqlalchemy_exception or error):
            raise down(target, why) from None

    return engine


def down(target: Target, why: str) -> DatabaseDown:
    """The error that says that this database can't be asked.

    Args:
        target: The database.
        why: Name of the driver's error; its text may hold what was written.
    """
    remedy = "Check user, password and database of its URL." if why.startswith(_REFUSED) else ""
    return DatabaseDown(f"The database {target} can't be asked ({why}).", remedy=remedy)


def _why_down(error: BaseException) -> str:
    """The driver's name of what keeps the database from answering; empty when a statement is wrong instead."""
    if isinstance(error, OSError):  # a TimeoutError is one
        return type(error).__name__
    if not isinstance(error, DBAPIError):
        return ""
    cause: Any = error.orig
    if name := getattr(cause, "sqlite_errorname", None):
        return "" if cause.sqlite_errorcode & 0xFF in _OUR_FAULT else str(name)
    if state := getattr(cause, "sqlstate", None):
        name = type(cause.__cause__ or cause).__name__
        return f"{state} {name}" if state.startswith(_ITS_FAULT) else ""
    return type(cause).__name__ if error.connection_invalidated else ""


def _sqlite(target: Target, config: DatabaseConfig, migrating: bool) -> AsyncEngine:
    file = Path(target.place)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {file.parent} of the database can't be made: {error.strerror}.",
            field="database.url",
            remedy="Correct database.url or data_dir.",
        ) from None
    with suppress(OSError):  # What keeps the file from being made shows when it is opened.
        # Nobody else on the machine need see who may ask, or what waits to be ingested.
        file.touch(0o600)
        file.chmod(0o600)
    pool: dict[str, Any] = {"poolclass": NullPool} if migrating else _pool(config)
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=target.place),
        # The driver begins no transaction by itself: BEGIN is said below.
        connect_args={"timeout": config.timeout_ms / 1000, "isolation_level": None},
        hide_parameters=True,
        **pool,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        # Full: what was acknowledged is on disk, even when the machine goes down.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute(f"PRAGMA foreign_keys = {'OFF' if migrating else 'ON'}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # Immediate: a transaction that reads first and writes then could otherwise fail half-way for a lock.
        immediate = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _postgresql(target: Target, config: DatabaseConfig, migrating: bool) -> AsyncEngine:
    import asyncpg  # noqa: PLC0415 - only where it is spoken

    async def connect() -> Any:
        try:
            return await asyncpg.connect(
                target.url,
                timeout=config.connect_timeout_ms / 1000,
                command_timeout=None if migrating else config.timeout_ms / 1000,
                server_settings={"application_name": "strata"},
            )
        except OSError as error:
            raise down(target, type(error).__name__) from None
        except (ValueError, asyncpg.ClientConfigurationError):
            raise ConfigError(
                f"The URL of the database {target} can't be used.",
                field="database.url",
                remedy="Correct its options, and write special characters in user and password as %40.",
            ) from None

    pool: dict[str, Any] = {"poolclass": NullPool} if migrating else _pool(config)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, hide_parameters=True, **pool)

    @event.listens_for(engine.sync_engine, "checkout")
    def still_open(connection: Any, _record: object, _proxy: object) -> None:
        # The driver knows of a server that closed; a ping would cost three round trips a transaction.
        if connection.driver_connection.is_closed():
            raise InvalidatePoolError("The server closed the connection.")

    return engine


def _pool(config: DatabaseConfig) -> dict[str, Any]:
    return {"pool_size": config.pool_size, "max_overflow": 0, "pool_timeout": config.timeout_ms / 1000}
