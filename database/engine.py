"""The one door to the SQL database: transactions that mean the same on SQLite and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contracts.errors import DatabaseDown
from database import migrate
from database.config import DatabaseConfig
from database.connect import WRITES, down, make_engine
from database.target import Dialect, Target

_SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


class Database:
    """A pool of connections to one database; belongs to one event loop.

    Whatever keeps the database from answering becomes a ``DatabaseDown``. What is wrong with a statement stays the
    error of SQLAlchemy that it is, for instance ``IntegrityError``.

    Args:
        target: The database.
        config: Size of the pool and time-outs.
    """

    def __init__(self, target: Target, config: DatabaseConfig) -> None:
        self.target = target
        self._config = config
        self._engine = make_engine(target, config)
        self._writer = self._engine.execution_options(**{WRITES: True})
        self._reader = self._engine.execution_options(**_SNAPSHOT if self.dialect == "postgresql" else {})
        self._checked = False

    @classmethod
    async def open(cls, url: str | Target, config: DatabaseConfig) -> Self:
        """Open a database whose tables are as this version needs them, or make them so where that is allowed.

        A database that can't be asked now is opened all the same, and checked at its first use.

        Args:
            url: See :meth:`database.target.Target.parse`.
            config: Size of the pool, time-outs, and whether PostgreSQL is migrated here; SQLite always is.

        Raises:
            ConfigError: The URL is of no known form, or the tables are of another version.
        """
        database = cls(url if isinstance(url, Target) else Target.parse(url), config)
        try:
            with suppress(DatabaseDown):
                await database._check()
        except BaseException:
            await database.close()
            raise
        return database

    @property
    def dialect(self) -> Dialect:
        """Which SQL is spoken."""
        return self.target.dialect

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Hold a connection that reads: one snapshot for all its statements, and no writes.

        Raises:
            DatabaseDown: It can't be asked, or no connection came free in time.
            ConfigError: Its tables are of another version.
        """
        async with self._transaction(self._reader) as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Hold a connection in one transaction: committed durably at the end, rolled back on any error.

        On SQLite it is the only one that writes, from its start on; on PostgreSQL it sees what others commit meanwhile,
        so lock the rows you read before you write (``with_for_update``).

        Raises:
            DatabaseDown: It can't be asked, or no connection came free in time; nothing was written, save where the
                connection broke in the commit itself: then it is not known.
            ConfigError: Its tables are of another version.
        """
        async with self._transaction(self._writer) as connection:
            yield connection

    async def close(self) -> None:
        """Close the connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                await self._engine.dispose()

    def __repr__(self) -> str:
        return f"Database({self.target!r})"

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        if not self._checked:
            await self._check()
        async with AsyncExitStack() as stack:
            connection = await self._enter(stack, engine)
            yield connection

    async def _enter(self, stack: AsyncExitStack, engine: AsyncEngine) -> AsyncConnection:
        try:
            return await stack.enter_async_context(engine.begin())
        except PoolTimeout:
            raise down(self.target, f"all {self._config.pool_size} connections of this process are busy") from None
        except OSError as error:
            raise down(self.target, type(error).__name__) from None

    async def _check(self) -> None:
        async with AsyncExitStack() as stack:
            connection = await self._enter(stack, self._reader)
            current = await connection.run_sync(migrate.current_of)
        if current != migrate.head() and (self.dialect == "sqlite" or self._config.migrate_at_start):
            await migrate.upgrade(self.target, self._config)
        else:
            migrate.refuse_unless_head(self.target, current)
        self._checked = True
