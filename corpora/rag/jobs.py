"""The workers' side of the durable ingest: which job is next, whose it is, and how it ended (R2)."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import CursorResult, Row, Select, bindparam, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from corpora.rag.ingest_config import IngestQueueConfig
from corpora.rag.ingest_rows import Action, Change, Step, add, lock, newer, now_ms, over
from corpora.rag.types import SourceDocument
from database.engine import Database
from database.tables import ingest_jobs as jobs
from database.tables import ingest_sources as sources

VANISHED = "The worker ended while it was at this source."
_DAY_MS = 86_400_000
# How many are swept or removed in one transaction.
_MANY = 1000
_MAX_REASON = 500
_decoder = msgspec.msgpack.Decoder(SourceDocument)


class Job(msgspec.Struct, frozen=True):
    """A change of a source that a worker has claimed.

    Args:
        id: Grows with each change of a source.
        account_id: The tenant.
        corpus: Name of the corpus.
        space: Owner space.
        source_id: The caller's name of it.
        source_key: Names the source among those of all accounts.
        action: Store or remove it.
        attempts: How often it was claimed, this time included.
        created_at: When it was acknowledged, milliseconds since the epoch.
        request_id: Of the request that brought it.
        stored: Fingerprint of what is stored of the source; empty when nothing is.
        payload: What to store.
    """

    id: int
    account_id: str
    corpus: str
    space: str
    source_id: str
    source_key: str
    action: Action
    attempts: int
    created_at: int
    request_id: str
    stored: str = ""
    payload: bytes = b""

    def document(self) -> SourceDocument:
        """What to store.

        Raises:
            msgspec.ValidationError: It was written by another version of this product.
        """
        return _decoder.decode(self.payload)


class Done(msgspec.Struct, frozen=True):
    """A job that is stored, or whose source is gone.

    Args:
        job: The job.
        fingerprint: Of the document; empty for a removal.
        chunks: Pieces that are searched.
        expires_at: Milliseconds since the epoch; 0 for never.
    """

    job: Job
    fingerprint: str = ""
    chunks: int = 0
    expires_at: int = 0


class Jobs:
    """What workers ask of the queue; any number of them, in any number of processes.

    Every method may raise ``DatabaseDown``.

    Args:
        database: Where it lies.
        config: Attempts, pauses and leases.
        clock: Milliseconds since the epoch; the clocks of all workers must agree to well within a lease.
        chance: Numbers in 0..1, for the pauses.
    """

    def __init__(
        self,
        database: Database,
        config: IngestQueueConfig,
        clock: Callable[[], int] = now_ms,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._config = config
        self._clock = clock
        self._chance = chance

    async def claim(self, owner: str, limit: int) -> list[Job]:
        """Take jobs that are due, the longest waiting first, for ``lease_s``.

        A job whose worker vanished is due again, and comes alone: if it is the one that makes workers vanish, it
        takes no others along.

        Args:
            owner: Who takes them, at most 32 characters.
            limit: Jobs at most.
        """
        now = self._clock()
        async with self._database.writing() as connection:
            await self._bury(connection, now)
            due = await connection.execute(_due(now, limit))
            rows = due.all()
            rows = [row for row in rows if row.state == "running"][:1] or rows
            if not rows:
                return []
            await connection.execute(
                update(jobs)
                .where(jobs.c.id.in_([row.id for row in rows]))
                .values(
                    state="running", owner=owner, attempts=jobs.c.attempts + 1, due_at=self._lease(now), updated_at=now
                )
            )
            keys = [row.source_key for row in rows]
            prints = select(sources.c.source_key, sources.c.fingerprint).where(sources.c.source_key.in_(keys))
            stored = dict((await connection.execute(prints)).tuples().all())
        return [_job(row, stored) for row in rows]

    async def renew(self, owner: str, ids: Collection[int]) -> set[int]:
        """Prolong leases.

        Returns:
            The jobs that still are the owner's; others were given to somebody else.
        """
        now = self._clock()
        async with self._database.writing() as connection:
            kept = await _owned(connection, owner, ids)
            await connection.execute(update(jobs).where(jobs.c.id.in_(kept)).values(due_at=self._lease(now)))
        return kept

    async def finish(self, owner: str, done: Sequence[Done]) -> None:
        """Note what is stored or gone; jobs that are no longer the owner's are left alone."""
        now = self._clock()
        async with self._database.writing() as connection:
            held = await self._held(connection, owner, [each.job for each in done])
            ended = [each for each in done if each.job.id in held]
            if not ended:
                return
            await connection.execute(
                update(jobs)
                .where(jobs.c.id == bindparam("job"))
                .values({**over("stored", now), "step": "", "reason": "", "chunks": bindparam("pieces")}),
                [{"job": each.job.id, "pieces": each.chunks} for each in ended],
            )
            await connection.execute(
                update(sources)
                .where(sources.c.source_key == bindparam("key"))
                .values(
                    fingerprint=bindparam("print"),
                    chunks=bindparam("pieces"),
                    expires_at=bindparam("expiry"),
                    updated_at=now,
                ),
                [
                    {"key": d.job.source_key, "print": d.fingerprint, "pieces": d.chunks, "expiry": d.expires_at}
                    for d in ended
                ],
            )

    async def fail(self, owner: str, job: Job, step: Step, reason: str, *, retry: bool) -> bool:
        """Note that a step failed: the job is due again after a pause, or dead.

        Args:
            owner: Who has the job.
            job: The job.
            step: What failed.
            reason: Why; holds nothing of the source's text.
            retry: Whether trying again can help.

        Returns:
            Whether it will be tried again.
        """
        again = retry and job.attempts < self._config.max_attempts
        pause = min(self._config.backoff_s * 2.0 ** (job.attempts - 1), self._config.max_backoff_s)
        pause *= 0.5 + self._chance() / 2
        await self._give_back(owner, [job], step, reason, job.attempts, pause if again else None)
        return again

    async def release(self, owner: str, held: Collection[Job], step: Step, reason: str, pause_s: float = 0) -> None:
        """Give jobs back as if they had not been claimed.

        Args:
            owner: Who has them.
            held: The jobs.
            step: What could not be done.
            reason: Why.
            pause_s: Seconds until they are due again.
        """
        for attempts in {job.attempts for job in held}:
            some = [job for job in held if job.attempts == attempts]
            await self._give_back(owner, some, step, reason, attempts - 1, pause_s)

    async def next_due(self) -> float | None:
        """Seconds until a job is due or a lease ends, negative when one is already; ``None`` when nothing waits."""
        async with self._database.reading() as connection:
            at = (await connection.execute(select(func.min(jobs.c.due_at)))).scalar_one()
        return None if at is None else (at - self._clock()) / 1000

    async def sweep(self) -> int:
        """Turn sources that have expired into jobs that remove them; how many."""
        now = self._clock()
        unsettled = jobs.c.state.in_(("pending", "running", "dead"))
        busy = select(jobs.c.id).where(jobs.c.source_key == sources.c.source_key, unsettled)
        expired = (
            select(sources)
            .where(sources.c.expires_at > 0, sources.c.expires_at <= now, ~busy.exists())
            .order_by(sources.c.source_key)
            .limit(_MANY)
            .with_for_update(skip_locked=True)
        )
        async with self._database.writing() as connection:
            rows = (await connection.execute(expired)).all()
            keys = [row.source_key for row in rows]
            # Asked again now that nobody can add any: newer work than the expired must not be lost.
            newer_work = set(
                await connection.scalars(select(jobs.c.source_key).where(jobs.c.source_key.in_(keys), unsettled))
            )
            gone = [
                Change(row.account_id, row.corpus, row.space, row.source_id, "delete")
                for row in rows
                if row.source_key not in newer_work
            ]
            await add(connection, gone, uuid4().hex, "", now)
        return len(gone)

    async def prune(self) -> int:
        """Remove what is over for longer than it is kept; how many jobs, a bounded number a call."""
        now = self._clock()
        finished = now - int(self._config.retention_days * _DAY_MS)
        dead = now - int(self._config.dead_retention_days * _DAY_MS)
        old = or_(
            jobs.c.state.in_(("stored", "superseded", "dropped")) & (jobs.c.updated_at < finished),
            (jobs.c.state == "dead") & (jobs.c.updated_at < dead),
        )
        known = select(jobs.c.id).where(jobs.c.source_key == sources.c.source_key)
        empty = (sources.c.fingerprint == "") & (sources.c.updated_at < finished) & ~known.exists()
        async with self._database.writing() as connection:
            ids = select(jobs.c.id).where(old).order_by(jobs.c.id).limit(_MANY).with_for_update(skip_locked=True)
            removed: CursorResult[tuple[()]] = await connection.execute(delete(jobs).where(jobs.c.id.in_(ids)))
            await connection.execute(delete(sources).where(empty))
        return removed.rowcount

    async def _bury(self, connection: AsyncConnection, now: int) -> None:
        """End jobs whose worker vanished, and that nobody shall try again."""
        vanished = (jobs.c.state == "running") & (jobs.c.due_at <= now)
        await connection.execute(update(jobs).where(vanished, newer()).values(over("superseded", now)))
        await connection.execute(
            update(jobs)
            .where(vanished, jobs.c.attempts >= self._config.max_attempts)
            .values(state="dead", owner="", due_at=None, reason=VANISHED, updated_at=now)
        )

    async def _give_back(
        self, owner: str, held: Collection[Job], step: Step, reason: str, attempts: int, pause_s: float | None
    ) -> None:
        """Make jobs pending again, dead when there is no pause, or superseded where newer work waits."""
        now = self._clock()
        async with self._database.writing() as connection:
            ids = await self._held(connection, owner, held)
            mine = update(jobs).where(jobs.c.id.in_(ids))
            await connection.execute(mine.where(newer()).values(over("superseded", now)))
            due_at = None if pause_s is None else now + int(pause_s * 1000)
            values = {"step": step, "reason": reason[:_MAX_REASON], "attempts": attempts, "due_at": due_at, "owner": ""}
            await connection.execute(
                mine.where(jobs.c.state == "running").values(
                    {**values, "state": "dead" if due_at is None else "pending", "updated_at": now}
                )
            )

    async def _held(self, connection: AsyncConnection, owner: str, claimed: Collection[Job]) -> set[int]:
        """Which of these jobs still are the owner's; locks their sources."""
        await lock(connection, [job.source_key for job in claimed])
        return await _owned(connection, owner, [job.id for job in claimed])

    def _lease(self, now: int) -> int:
        return now + int(self._config.lease_s * 1000)


async def _owned(connection: AsyncConnection, owner: str, ids: Collection[int]) -> set[int]:
    """Which jobs an owner still has; locks them, in an order that all follow."""
    mine = (jobs.c.id.in_(ids), jobs.c.owner == owner, jobs.c.state == "running")
    return set(await connection.scalars(select(jobs.c.id).where(*mine).order_by(jobs.c.id).with_for_update()))


def _due(now: int, limit: int) -> Select[Any]:
    other = jobs.alias()
    taken = select(other.c.id).where(
        other.c.source_key == jobs.c.source_key,
        other.c.id != jobs.c.id,
        (other.c.id > jobs.c.id) | ((other.c.state == "running") & (other.c.due_at > now)),
    )
    return (
        select(jobs)
        .where(jobs.c.due_at <= now, ~taken.exists())
        .order_by(jobs.c.due_at, jobs.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True, of=jobs)
    )


def _job(row: Row[Any], stored: Mapping[str, str]) -> Job:
    return Job(
        id=row.id,
        account_id=row.account_id,
        corpus=row.corpus,
        space=row.space,
        source_id=row.source_id,
        source_key=row.source_key,
        action=row.action,
        attempts=row.attempts + 1,
        created_at=row.created_at,
        request_id=row.request_id,
        stored=stored.get(row.source_key, ""),
        payload=row.payload or b"",
    )
