"""The durable queue of a corpus's changes, as those see it who submit them and ask what became of them (R2)."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import Row, func, select

from contracts.errors import InvalidBody, Overloaded
from contracts.uri import parse_space
from corpora.rag.documents import check, check_source_id
from corpora.rag.ingest_config import IngestQueueConfig
from corpora.rag.ingest_rows import Change, State, add, now_ms
from corpora.rag.types import Receipt, ReceiptState, SourceDocument, SourceReceipt
from database.engine import Database
from database.tables import ingest_jobs as jobs
from database.tables import ingest_sources as sources

# Seconds between two looks at a receipt that is waited for, the first and the longest.
_LOOK, _LONGEST_LOOK = 0.02, 0.5
_STATES: dict[State, ReceiptState] = {
    "pending": "pending",
    "running": "pending",
    "stored": "stored",
    "superseded": "stored",
    "dead": "failed",
    "dropped": "failed",
}
_DROPPED = "It failed, and was then dropped."


class StoredSource(msgspec.Struct, frozen=True):
    """A source that is stored.

    Args:
        source_id: The caller's name of it.
        chunks: Pieces that are searched.
        expires_at: Milliseconds since the epoch; 0 for never.
        updated_at: When it last changed or was asked to, milliseconds since the epoch.
    """

    source_id: str
    chunks: int
    expires_at: int
    updated_at: int


class Backlog(msgspec.Struct, frozen=True):
    """Work of one corpus that is not done.

    Args:
        corpus: Name of the corpus.
        state: pending, running or dead.
        jobs: How many.
        oldest_ms: How long the oldest of them has been there.
    """

    corpus: str
    state: State
    jobs: int
    oldest_ms: int


class IngestQueue:
    """Takes changes in; what it has returned a receipt for survives any crash.

    Every method may raise ``DatabaseDown``.

    Args:
        database: Where the queue lies.
        config: How much may wait.
        clock: Milliseconds since the epoch.
    """

    def __init__(self, database: Database, config: IngestQueueConfig, clock: Callable[[], int] = now_ms) -> None:
        self._database = database
        self._config = config
        self._clock = clock

    async def submit(
        self, account_id: str, corpus: str, documents: Sequence[SourceDocument], request_id: str = ""
    ) -> Receipt:
        """Record sources to be stored, all of them or none; of two with one id the last counts.

        Args:
            account_id: The tenant.
            corpus: Name of the corpus.
            documents: What its adapter has made.
            request_id: For logs.

        Raises:
            InvalidBody: A source can't be stored, see :func:`corpora.rag.documents.check`.
            Overloaded: Too much of this account waits already; nothing was recorded.
        """
        for document in documents:
            check(document)
        changes = [
            Change(account_id, corpus, each.space, each.source_id, "put", msgspec.msgpack.encode(each))
            for each in documents
        ]
        return await self._submit(account_id, corpus, changes, request_id)

    async def submit_deletes(
        self, account_id: str, corpus: str, space: str, source_ids: Sequence[str], request_id: str = ""
    ) -> Receipt:
        """Record sources to be removed, all of them or none; those that do not exist are as good as removed.

        Args:
            account_id: The tenant.
            corpus: Name of the corpus.
            space: Owner space of the sources.
            source_ids: The caller's names of them.
            request_id: For logs.

        Raises:
            InvalidBody: An id can't name a source.
            InvalidUri: The space is not valid.
            Overloaded: Too much of this account waits already; nothing was recorded.
        """
        parse_space(space, field="space")
        for source_id in source_ids:
            check_source_id(source_id)
        changes = [Change(account_id, corpus, space, source_id, "delete") for source_id in source_ids]
        return await self._submit(account_id, corpus, changes, request_id)

    async def receipt(self, account_id: str, receipt_id: str, request_id: str = "") -> Receipt | None:
        """What became of a submission; ``None`` where this account has no such receipt (any more).

        A source whose change was overtaken by a newer one has the state of the newest.

        Args:
            account_id: Who asks.
            receipt_id: From a receipt.
            request_id: Of the request that asks.
        """
        columns = (jobs.c.source_key, jobs.c.corpus, jobs.c.source_id, jobs.c.state, jobs.c.reason, jobs.c.chunks)
        mine = (jobs.c.receipt_id == receipt_id, jobs.c.account_id == account_id)
        overtaken = select(jobs.c.source_key).where(*mine, jobs.c.state == "superseded")
        newest = select(func.max(jobs.c.id)).where(jobs.c.source_key.in_(overtaken)).group_by(jobs.c.source_key)
        async with self._database.reading() as connection:
            own = (await connection.execute(select(*columns).where(*mine).order_by(jobs.c.id))).all()
            now = (await connection.execute(select(*columns).where(jobs.c.id.in_(newest)))).all()
        if not own:
            return None
        latest = {row.source_key: row for row in now}
        parts = tuple(_source_receipt(latest.get(row.source_key, row)) for row in own)
        return _receipt(receipt_id, own[0].corpus, parts, request_id)

    async def settled(self, account_id: str, receipt_id: str, timeout_s: float) -> Receipt | None:
        """Wait until nothing of a submission is pending, or the time is over.

        Args:
            account_id: Who asks.
            receipt_id: From a receipt.
            timeout_s: Seconds to wait at most.

        Returns:
            The receipt as it is then, pending if the time is over; ``None`` as :meth:`receipt`.
        """
        end, pause = time.monotonic() + timeout_s, _LOOK
        while True:
            found = await self.receipt(account_id, receipt_id)
            left = end - time.monotonic()
            if found is None or found.state != "pending" or left <= 0:
                return found
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_LOOK)

    async def sources(
        self, account_id: str, corpus: str, space: str, after: str = "", limit: int = 100
    ) -> list[StoredSource]:
        """The stored sources of a space, by id.

        Args:
            account_id: The tenant.
            corpus: Name of the corpus.
            space: Owner space.
            after: Only ids that come after this one.
            limit: How many at most.
        """
        columns = [sources.c[name] for name in StoredSource.__struct_fields__]
        asked = (
            select(*columns)
            .where(
                sources.c.account_id == account_id,
                sources.c.corpus == corpus,
                sources.c.space == space,
                sources.c.fingerprint != "",
                sources.c.source_id > after,
            )
            .order_by(sources.c.source_id)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            return [StoredSource(*row) for row in await connection.execute(asked)]

    async def backlog(self) -> list[Backlog]:
        """How much of each corpus is not done, for metrics."""
        counted = (
            select(jobs.c.corpus, jobs.c.state, func.count(), func.min(jobs.c.created_at))
            .where(jobs.c.state.in_(("pending", "running", "dead")))
            .group_by(jobs.c.corpus, jobs.c.state)
            .order_by(jobs.c.corpus, jobs.c.state)
        )
        now = self._clock()
        async with self._database.reading() as connection:
            rows = (await connection.execute(counted)).all()
        return [Backlog(corpus, state, count, max(0, now - oldest)) for corpus, state, count, oldest in rows]

    async def _submit(self, account_id: str, corpus: str, changes: Sequence[Change], request_id: str) -> Receipt:
        if not changes:
            raise InvalidBody("There is nothing to do.", field="sources", remedy="Name at least one source.")
        receipt_id = uuid4().hex
        waiting = (
            select(func.count())
            .select_from(jobs)
            .where(jobs.c.account_id == account_id, jobs.c.state.in_(("pending", "running")))
        )
        async with self._database.writing() as connection:
            await add(connection, changes, receipt_id, request_id, self._clock())
            # Counted afterwards, because what replaces waiting work takes no more room; an error undoes it all.
            count = (await connection.execute(waiting)).scalar_one()
            if count > self._config.max_backlog:
                raise Overloaded(
                    f"More than {self._config.max_backlog} changes of this account would wait.",
                    remedy="Retry in a moment, and send fewer at once.",
                )
        named = dict.fromkeys(change.source_id for change in changes)
        return _receipt(receipt_id, corpus, tuple(SourceReceipt(name, "pending") for name in named), request_id)


def _receipt(receipt_id: str, corpus: str, parts: tuple[SourceReceipt, ...], request_id: str) -> Receipt:
    states = {part.state for part in parts}
    overall: ReceiptState = "failed" if "failed" in states else "pending" if "pending" in states else "stored"
    return Receipt(receipt_id, corpus, overall, parts, request_id)


def _source_receipt(row: Row[*tuple[Any, ...]]) -> SourceReceipt:
    reason = _DROPPED if row.state == "dropped" else row.reason
    return SourceReceipt(row.source_id, _STATES[row.state], reason, row.chunks)
