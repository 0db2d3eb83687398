"""What the tests of the durable ingest share: sources, a clock set by hand, and both sides of a queue."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from corpora.rag.failures import Failures
from corpora.rag.ingest_config import IngestQueueConfig
from corpora.rag.jobs import Done, Job, Jobs
from corpora.rag.queue import IngestQueue
from corpora.rag.types import Receipt, SourceDocument
from database.engine import Database

ACCOUNT, CORPUS, SPACE = "acme", "memory", "user:alice"


def source(source_id: str, text: str = "A text.", **changes: Any) -> SourceDocument:
    """A source of the test's space."""
    plain = SourceDocument(source_id, SPACE, "memory", "memory", text)
    return msgspec.structs.replace(plain, **changes)


class Clock:
    """Milliseconds that pass when told to."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * 1000)


class Bench:
    """A queue on a database, with a clock set by hand, or ``clock``, and pauses without chance."""

    def __init__(self, database: Database, clock: Callable[[], int] | None = None, **settings: Any) -> None:
        self.config = IngestQueueConfig(**({"backoff_s": 1.0, "lease_s": 30.0, "max_attempts": 3} | settings))
        self.database = database
        self.clock = Clock()
        self.queue = IngestQueue(database, self.config, clock or self.clock)
        self.jobs = Jobs(database, self.config, clock or self.clock, chance=lambda: 1.0)
        self.failures = Failures(database, clock or self.clock)

    async def put(self, *source_ids: str, account: str = ACCOUNT, corpus: str = CORPUS, **changes: Any) -> Receipt:
        """Submit sources of these ids."""
        return await self.queue.submit(account, corpus, [source(each, **changes) for each in source_ids])

    async def delete(self, *source_ids: str, account: str = ACCOUNT) -> Receipt:
        """Submit removals."""
        return await self.queue.submit_deletes(account, CORPUS, SPACE, source_ids)

    async def finish(self, owner: str, jobs: Iterable[Job], **done: Any) -> None:
        """Note jobs as stored."""
        await self.jobs.finish(owner, [Done(job, "" if job.action == "delete" else "print", **done) for job in jobs])

    async def work(self, owner: str = "worker", **done: Any) -> list[str]:
        """Claim all that is due and note it as stored; the ids of the sources."""
        claimed = await self.jobs.claim(owner, 1000)
        await self.finish(owner, claimed, **done)
        return names(claimed)

    async def state(self, receipt: Receipt, account: str = ACCOUNT) -> str:
        """How a receipt stands."""
        found = await self.queue.receipt(account, receipt.receipt_id)
        assert found
        return found.state


def names(jobs: Sequence[Job]) -> list[str]:
    """The ids of the sources of jobs."""
    return [job.source_id for job in jobs]
