"""The rows of the durable ingest, as its queue and its workers change them alike.

A job goes pending → running → stored; running → pending when a step fails, or dead when it failed too often or no retry
can mend it. Newer work on the same source makes what waits or is dead superseded. Three rules keep every source's
changes in order, on both dialects:

* Whoever adds a job, or gives one back, first locks the source's row in ``ingest_sources``.
* So each source has at most one job that is pending or dead, and it is its newest one.
* At most one job of a source runs; it may be older than the pending one, which waits for it to end.
"""

import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec
from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from database.tables import ingest_jobs as jobs
from database.tables import ingest_sources as sources
from database.upsert import insert_into

Action = Literal["put", "delete"]
Step = Literal["", "chunk", "embed", "write", "delete"]
State = Literal["pending", "running", "stored", "superseded", "dead", "dropped"]
# Rows a statement: far below the parameters that both databases take.
_ROWS = 500


class Change(msgspec.Struct, frozen=True):
    """What shall happen to one source.

    Args:
        account_id: The tenant.
        corpus: Name of the corpus.
        space: Owner space.
        source_id: The caller's name of it.
        action: Store or remove it.
        payload: The ``SourceDocument`` in msgpack; ``None`` for a removal.
    """

    account_id: str
    corpus: str
    space: str
    source_id: str
    action: Action
    payload: bytes | None = None

    @property
    def key(self) -> str:
        """Names the source among those of all accounts."""
        parts = msgspec.msgpack.encode((self.account_id, self.corpus, self.space, self.source_id))
        return blake2b(parts, digest_size=16).hexdigest()


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


async def add(
    connection: AsyncConnection, changes: Iterable[Change], receipt_id: str, request_id: str, now: int
) -> None:
    """Add a job a source; of several changes of one source the last counts. Older ones that wait are superseded."""
    latest = {change.key: change for change in changes}
    for keys in parts(sorted(latest)):
        await _enlist(connection, [(key, latest[key]) for key in keys], now)
    for keys in parts(list(latest)):
        await connection.execute(
            update(jobs)
            .where(jobs.c.source_key.in_(keys), jobs.c.state.in_(("pending", "dead")))
            .values(over("superseded", now))
        )
        await connection.execute(
            insert(jobs),
            [
                {
                    "receipt_id": receipt_id,
                    "request_id": request_id,
                    **_place(key, latest[key]),
                    "action": latest[key].action,
                    "payload": latest[key].payload,
                    "state": "pending",
                    "step": "",
                    "reason": "",
                    "attempts": 0,
                    "owner": "",
                    "due_at": now,
                    "chunks": 0,
                    "created_at": now,
                    "updated_at": now,
                }
                for key in keys
            ],
        )


async def lock(connection: AsyncConnection, keys: Iterable[str]) -> None:
    """Lock sources until the transaction ends, in an order that all follow."""
    for some in parts(sorted(set(keys))):
        rows = select(sources.c.source_key).where(sources.c.source_key.in_(some)).order_by(sources.c.source_key)
        await connection.execute(rows.with_for_update())


def over(state: State, now: int) -> dict[str, object]:
    """Values of a job that is over: its payload goes, and nobody claims it again."""
    return {"state": state, "payload": None, "owner": "", "due_at": None, "updated_at": now}


def newer() -> ColumnElement[bool]:
    """Whether a job of the same source came after this one."""
    other = jobs.alias()
    return select(other.c.id).where(other.c.source_key == jobs.c.source_key, other.c.id > jobs.c.id).exists()


def parts(values: Sequence[str]) -> Iterable[Sequence[str]]:
    """Values in as many groups as statements need."""
    return (values[start : start + _ROWS] for start in range(0, len(values), _ROWS))


async def _enlist(connection: AsyncConnection, wanted: Sequence[tuple[str, Change]], now: int) -> None:
    """Make the rows of sources that are new, and lock those of all."""
    new = {"fingerprint": "", "chunks": 0, "expires_at": 0, "updated_at": now}
    upsert = insert_into(connection, sources).values([{**_place(key, change), **new} for key, change in wanted])
    await connection.execute(
        upsert.on_conflict_do_update(
            index_elements=[sources.c.source_key], set_={"updated_at": upsert.excluded.updated_at}
        )
    )


def _place(key: str, change: Change) -> dict[str, str]:
    return {
        "source_key": key,
        "account_id": change.account_id,
        "corpus": change.corpus,
        "space": change.space,
        "source_id": change.source_id,
    }
