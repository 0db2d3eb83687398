"""The transactional outbox: what the database has committed reaches the index, sooner or later, and in the end exactly.

A change to an entity or its chunks notes the entity in ``kb_outbox`` in its own transaction (``sql.touch``). The worker
claims such notes, reads the entities as they are by then, and makes the index hold just that. A note goes once the
index has it, unless the entity has changed again meanwhile. So what is done twice does no harm, and what was lost with
a process is done again by another one when its claim has run out.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

import msgspec
from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.errors import ConfigError, DatabaseDown, StrataError
from contracts.ports import Embedder, WritableIndex
from corpora.knowledge_base import sql
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.writing import Writing, mark_embedded, note_published
from database.engine import Database
from database.tables import kb_outbox

logger = logging.getLogger(__name__)

OpenWriter = Callable[[], AbstractAsyncContextManager[WritableIndex]]
# Of a worker, while something keeps it from its work altogether.
_MAX_PAUSE_S = 10.0


class Note(msgspec.Struct, frozen=True):
    """An entity whose index is behind."""

    account_id: str
    entity_id: str
    version: int
    attempts: int


class Behind(msgspec.Struct, frozen=True):
    """How far the index is behind.

    Args:
        waiting: Entities that have changed.
        failing: Those of them that failed before.
        oldest_ms: How long the one that waits longest has been due.
        error: Why the last one failed, by code; empty for none.
    """

    waiting: int
    failing: int
    oldest_ms: int
    error: str = ""


class OutboxWorker:
    """Empties the outbox.

    Args:
        database: Where the outbox is.
        open_writer: Opens the index for writing; held only while there is work.
        embedder: Makes the vectors.
        config: Batch, pauses, lease.
    """

    def __init__(
        self, database: Database, open_writer: OpenWriter, embedder: Embedder, config: KnowledgeBaseConfig
    ) -> None:
        self._database = database
        self._open_writer = open_writer
        self._model = embedder.model
        self._write = Writing(embedder, config)
        self._config = config.outbox
        self._stopping = False
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Work until :meth:`stop`; whatever fails is tried again, after a pause that grows."""
        failures = 0
        begun = False
        while not self._stopping:
            try:
                if not begun:
                    await self._begin()
                    begun = True
                await self.drain()
                failures = 0
            except Exception as error:  # Whatever a backend raises, it may be back a moment later.
                failures += 1
                logger.warning("The index of the knowledge base can't be brought up to date: %s", _code(error))
            pause = min(_MAX_PAUSE_S, self._config.poll_s * 2 ** min(failures, 16))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()

    def stop(self) -> None:
        """Let :meth:`run` end once it has done what it holds."""
        self._stopping = True
        self._woken.set()

    def wake(self) -> None:
        """Let :meth:`run` look at once."""
        self._woken.set()

    async def drain(self) -> int:
        """Work until nothing is due; returns how many entities the index has caught up with.

        Raises:
            DatabaseDown: The outbox can't be asked.
            ConfigError: The index can't be opened for writing, or holds vectors of another model.
            StageError: The index can't be reached.
        """
        done = 0
        if not await self._due():
            return done
        async with self._open_writer() as index:
            while not self._stopping and (notes := await self._claim()):
                done += await self._work(index, notes)
        return done

    async def _begin(self) -> None:
        """Find what must be embedded though it has not changed: chunks of another model, and all for a new index."""
        async with self._open_writer() as index:
            empty = await index.model() is None
        await note_published(self._database, None if empty else self._model)

    async def _work(self, index: WritableIndex, notes: Sequence[Note]) -> int:
        try:
            await self._catch_up(index, notes)
        except ConfigError:
            # Of the index as a whole, no fault of an entity.
            await self._fail(notes, ConfigError.code, again_at_once=True)
            raise
        except DatabaseDown:
            raise
        except Exception as error:
            if len(notes) > 1:  # One by one, so that the entity at fault fails alone.
                return sum([await self._work(index, [note]) for note in notes])
            await self._fail(notes, _code(error))
            return 0
        return len(notes)

    async def _catch_up(self, index: WritableIndex, notes: Sequence[Note]) -> None:
        by_account: dict[str, list[Note]] = {}
        for note in notes:
            by_account.setdefault(note.account_id, []).append(note)
        for account_id, ours in by_account.items():
            written = await self._write(self._database, index, account_id, [note.entity_id for note in ours])
            async with self._database.writing() as connection:
                await mark_embedded(connection, account_id, written, self._model)
                for note in _in_order(ours):
                    await self._settle(connection, note)

    async def _due(self) -> bool:
        async with self._database.reading() as connection:
            return await connection.scalar(select(kb_outbox.c.version).where(*_claimable()).limit(1)) is not None

    async def _claim(self) -> list[Note]:
        query = (
            select(*(kb_outbox.c[name] for name in Note.__struct_fields__))
            .where(*_claimable())
            .order_by(kb_outbox.c.due_at, kb_outbox.c.account_id, kb_outbox.c.entity_id)
            .limit(self._config.batch)
            .with_for_update(skip_locked=True)
        )
        self._claimed_as = uuid.uuid4().hex
        until = sql.now_ms() + int(self._config.lease_s * 1000)
        async with self._database.writing() as connection:
            notes = [Note(*row) for row in await connection.execute(query)]
            for note in notes:
                await connection.execute(
                    update(kb_outbox).where(*_row(note)).values(claim=self._claimed_as, claimed_until=until)
                )
        return notes

    async def _settle(self, connection: AsyncConnection, note: Note) -> None:
        """Take the note out; leave it, due again, when the entity has changed meanwhile."""
        ours = (*_row(note), kb_outbox.c.claim == self._claimed_as)
        taken = await connection.execute(kb_outbox.delete().where(*ours, kb_outbox.c.version == note.version))
        if taken.rowcount:
            return
        newer = await connection.execute(update(kb_outbox).where(*ours).values(claim="", claimed_until=0))
        if not newer.rowcount:
            # The claim ran out, and another process was at it: what it wrote may have come before ours.
            await sql.touch(connection, note.account_id, [note.entity_id])

    async def _fail(self, notes: Sequence[Note], error: str, *, again_at_once: bool = False) -> None:
        async with self._database.writing() as connection:
            for note in _in_order(notes):
                pause = 0.0 if again_at_once else min(self._config.max_backoff_s, 2.0 ** min(note.attempts, 16))
                await connection.execute(
                    update(kb_outbox)
                    .where(*_row(note), kb_outbox.c.claim == self._claimed_as)
                    .values(
                        attempts=note.attempts + 1,
                        error=error,
                        due_at=sql.now_ms() + int(pause * 1000),
                        claim="",
                        claimed_until=0,
                    )
                )


async def behind(database: Database, account_id: str | None = None) -> Behind:
    """How far the index is behind, for one account or for all."""
    mine = [kb_outbox.c.account_id == account_id] if account_id else []
    failed = [*mine, kb_outbox.c.attempts > 0]
    async with database.reading() as connection:
        waiting, oldest = (
            await connection.execute(select(func.count(), func.min(kb_outbox.c.due_at)).where(*mine))
        ).one()
        failing = await connection.scalar(select(func.count()).select_from(kb_outbox).where(*failed))
        last = select(kb_outbox.c.error).where(*failed).order_by(kb_outbox.c.due_at.desc()).limit(1)
        error = await connection.scalar(last)
    return Behind(waiting, failing or 0, max(0, sql.now_ms() - oldest) if waiting else 0, error or "")


def _code(error: Exception) -> str:
    """What is told of an error: the message of a foreign one may hold text of a chunk."""
    return error.code if isinstance(error, StrataError) else type(error).__name__


def _claimable() -> tuple[ColumnElement[bool], ...]:
    now = sql.now_ms()
    return kb_outbox.c.due_at <= now, kb_outbox.c.claimed_until <= now


def _in_order(notes: Sequence[Note]) -> list[Note]:
    """In the order in which all lock the rows, so that no two wait for each other."""
    return sorted(notes, key=lambda note: (note.account_id, note.entity_id))


def _row(note: Note) -> tuple[ColumnElement[bool], ...]:
    return kb_outbox.c.account_id == note.account_id, kb_outbox.c.entity_id == note.entity_id
