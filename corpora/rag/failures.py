"""The dead letters of the ingest: what failed too often, or can't be mended by trying again (R2)."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, select, true, update

from corpora.rag.ingest_rows import Action, Step, now_ms, over
from database.engine import Database
from database.tables import ingest_jobs as jobs


class Failure(msgspec.Struct, frozen=True):
    """A change that was put aside.

    Args:
        id: Names it for ``retry`` and ``drop``.
        account_id: The tenant.
        corpus: Name of the corpus.
        space: Owner space.
        source_id: The caller's name of the source.
        action: What was to be done.
        step: What failed; empty where the worker itself ended.
        reason: Why, without any text of the source.
        attempts: How often it was tried.
        created_at: When it was acknowledged, milliseconds since the epoch.
        updated_at: When it was put aside, milliseconds since the epoch.
    """

    id: int
    account_id: str
    corpus: str
    space: str
    source_id: str
    action: Action
    step: Step
    reason: str
    attempts: int
    created_at: int
    updated_at: int


class Failures:
    """Shows, retries and drops dead letters; each is its source's newest change.

    Every method may raise ``DatabaseDown``, and narrows to what its arguments name: ``ids``, ``corpus``,
    ``account_id``; ``None`` means any.

    Args:
        database: Where the queue lies.
        clock: Milliseconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], int] = now_ms) -> None:
        self._database = database
        self._clock = clock

    async def list(
        self, corpus: str | None = None, account_id: str | None = None, after: int = 0, limit: int = 100
    ) -> "list[Failure]":
        """Dead letters with an id above ``after``, by id, at most ``limit``."""
        columns = [jobs.c[name] for name in Failure.__struct_fields__]
        asked = select(*columns).where(_dead(None, corpus, account_id), jobs.c.id > after)
        async with self._database.reading() as connection:
            return [Failure(*row) for row in await connection.execute(asked.order_by(jobs.c.id).limit(limit))]

    async def retry(
        self, ids: Collection[int] | None = None, corpus: str | None = None, account_id: str | None = None
    ) -> int:
        """Make them due at once, with all attempts anew; how many."""
        now = self._clock()
        values = {"state": "pending", "attempts": 0, "due_at": now, "updated_at": now}
        return await self._update(_dead(ids, corpus, account_id), values)

    async def drop(
        self, ids: Collection[int] | None = None, corpus: str | None = None, account_id: str | None = None
    ) -> int:
        """Give them up, with the texts that were kept for them; what is stored of their sources stays. How many."""
        return await self._update(_dead(ids, corpus, account_id), over("dropped", self._clock()))

    async def _update(self, which: ColumnElement[bool], values: dict[str, Any]) -> int:
        async with self._database.writing() as connection:
            return (await connection.execute(update(jobs).where(which).values(values))).rowcount


def _dead(ids: Collection[int] | None, corpus: str | None, account_id: str | None) -> ColumnElement[bool]:
    return (
        (jobs.c.state == "dead")
        & (true() if ids is None else jobs.c.id.in_(ids))
        & (true() if corpus is None else jobs.c.corpus == corpus)
        & (true() if account_id is None else jobs.c.account_id == account_id)
    )
