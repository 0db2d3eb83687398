"""How an ingress looks up the key of a request: every request pays it, so that it must cost next to nothing.

In a SQLite file, by a connection of its own and without a thread: some 10 µs, and a revocation holds at once. In
PostgreSQL, which is a round trip away, by one query at a time for all requests that wait, whose answer is remembered
for a moment.
"""

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import bindparam
from sqlalchemy.dialects import sqlite

from contracts.deadline import Deadline
from contracts.errors import DatabaseDown, StageTimeout
from database.connect import down
from database.engine import Database
from database.tables import api_keys
from database.target import Target
from deployments.batching import Batcher
from deployments.identity.config import KeysSettings
from deployments.identity.keys import STORED, Find, KeyStore, StoredKey

_QUERY = str(STORED.where(api_keys.c.key_id == bindparam("key_id")).compile(dialect=sqlite.dialect()))
# A file in WAL mode keeps readers waiting for moments only.
_FILE_PATIENCE_S = 1.0
# A database that answers does so within milliseconds.
_PATIENCE_S = 2.0
# Keys remembered at most, and as many ids of none: some megabytes. Also the most ids a query.
_MOST = 10_000


def make_lookup(database: Database, settings: KeysSettings) -> Find:
    """The way to look up keys that suits a database."""
    if database.dialect == "sqlite":
        return FileLookup(database.target)
    return CachedLookup(KeyStore(database).find, settings.cache_s)


class FileLookup:
    """Reads a SQLite file in the calling thread.

    Args:
        target: The file; opened when it is first asked.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._db: sqlite3.Connection | None = None

    async def __call__(self, key_id: str) -> StoredKey | None:
        """The key of an id.

        Raises:
            DatabaseDown: The file can't be read.
        """
        try:
            self._db = self._db or self._open()
            row = self._db.execute(_QUERY, (key_id,)).fetchone()
        except sqlite3.Error as error:
            self.close()
            raise down(self._target, getattr(error, "sqlite_errorname", type(error).__name__)) from None
        return StoredKey.of(row) if row else None

    def close(self) -> None:
        """Close the file; asked again, it is opened again."""
        if self._db:
            self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        # Not ro: then SQLite could not make the file beside it that readers share.
        uri = f"{Path(self._target.place).as_uri()}?mode=rw"
        db = sqlite3.connect(uri, uri=True, timeout=_FILE_PATIENCE_S, isolation_level=None)
        db.execute("PRAGMA query_only = ON")
        return db


class _Entry(NamedTuple):
    until: float
    key: StoredKey | None


class CachedLookup:
    """Asks a database, and remembers the answers for a moment. Belongs to one event loop.

    Args:
        find: Asks for several ids at once.
        seconds: How long an answer holds, counted from when it was asked for; 0 asks on each request.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        find: Callable[[Collection[str]], Awaitable[Mapping[str, StoredKey]]],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._clock = clock
        # Apart, so that made-up ids push out no keys.
        self._known: OrderedDict[str, _Entry] = OrderedDict()
        self._unknown: OrderedDict[str, _Entry] = OrderedDict()
        self._batcher: Batcher[str, StoredKey | None] = Batcher(self._look, lambda key_id: 1, _MOST)

    async def __call__(self, key_id: str) -> StoredKey | None:
        """The key of an id.

        Raises:
            DatabaseDown: The database does not answer, and nothing is remembered that still holds.
        """
        if entry := self._remembered(key_id):
            return entry.key
        try:
            return await self._batcher.submit(key_id, Deadline.after(_PATIENCE_S))
        except StageTimeout:
            raise DatabaseDown("The database of the API keys takes too long.") from None

    async def _look(self, key_ids: Sequence[str], deadline: Deadline) -> list[StoredKey | None]:
        # Those that came while the last query ran may have been answered by it.
        answers = {key_id: entry.key for key_id in key_ids if (entry := self._remembered(key_id))}
        if wanted := set(key_ids) - answers.keys():
            until = self._clock() + self._seconds
            try:
                async with asyncio.timeout(deadline.left()):
                    found = await self._find(wanted)
            except TimeoutError:
                raise DatabaseDown("The database of the API keys takes too long.") from None
            for key_id in wanted:
                answers[key_id] = found.get(key_id)
                self._remember(key_id, _Entry(until, answers[key_id]))
        return [answers[key_id] for key_id in key_ids]

    def _remembered(self, key_id: str) -> _Entry | None:
        entry = self._known.get(key_id) or self._unknown.get(key_id)
        return entry if entry and entry.until > self._clock() else None

    def _remember(self, key_id: str, entry: _Entry) -> None:
        entries, others = (self._known, self._unknown) if entry.key else (self._unknown, self._known)
        others.pop(key_id, None)
        entries[key_id] = entry
        entries.move_to_end(key_id)
        if len(entries) > _MOST:
            entries.popitem(last=False)
