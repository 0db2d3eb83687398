"""Any order of submissions, claims, failures, crashes and sweeps against a model of the queue (R2).

Whatever happens: nothing that was acknowledged is lost, of each source the newest change wins, its changes reach the
index in their order, and no two workers have it at once.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete, select

from corpora.rag.jobs import Done, Job
from database.config import DatabaseConfig
from database.engine import Database
from database.tables import ingest_jobs, ingest_sources
from tests.support.ingest import ACCOUNT, CORPUS, SPACE, Bench, source

T = TypeVar("T")
SOURCES = ("a", "b", "c")
WORKERS = ("one", "two")
Outcomes = st.sampled_from(["finish", "crash after the write", "crash", "fail", "fail for good", "release"])


class Change(NamedTuple):
    """A change of a source as the model knows it: its number, what it stores, and when that expires."""

    number: int
    action: str
    expires_at: int


class QueueMachine(RuleBasedStateMachine):
    """Two workers, three sources, one clock."""

    runner: asyncio.Runner
    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.run(self.clear())
        self.bench = Bench(self.database, dead_retention_days=10_000)
        self.changes: dict[str, list[Change]] = {name: [] for name in SOURCES}
        self.numbers: dict[int, Change] = {}
        # The newest change of a source that is not over.
        self.open: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.index: dict[str, Change] = {}
        self.noted: dict[str, Change] = {}
        self.written: dict[str, int] = {}
        self.claimed: list[tuple[str, Job, int]] = []
        self.receipts: list[str] = []
        self.count = 0

    def teardown(self) -> None:
        """Work off all that is left, then hold the index against the model."""
        while self.open:
            self.run(self.bench.failures.retry())
            self.bench.clock.advance(10_000)
            for job in self.claim("last", 100):
                self.write(job)
                self.finish("last", job)
        assert self.run(self.bench.jobs.next_due()) is None
        for name, changes in self.changes.items():
            if changes and name not in self.dropped:
                newest = changes[-1]
                assert self.index.get(name) == (newest if newest.action == "put" else None)
        for receipt_id in self.receipts:
            found = self.run(self.bench.queue.receipt(ACCOUNT, receipt_id))
            assert found is None or found.state != "pending"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def clear(self) -> None:
        async with self.database.writing() as connection:
            await connection.execute(delete(ingest_jobs))
            await connection.execute(delete(ingest_sources))

    def change(self, name: str, action: str, expires_at: int = 0) -> None:
        self.count += 1
        self.changes[name].append(Change(self.count, action, expires_at))
        self.open[name] = self.count
        self.dropped.discard(name)

    def claim(self, worker: str, limit: int) -> list[Job]:
        now = self.bench.clock()
        claimed = self.run(self.bench.jobs.claim(worker, limit))
        for job in claimed:
            assert not [
                other for _, other, until in self.claimed if other.source_id == job.source_id and until > now
            ], "two workers have one source"
            if job.id not in self.numbers:
                number = int(job.request_id or self.changes[job.source_id][-1].number)
                self.numbers[job.id] = next(c for c in self.changes[job.source_id] if c.number == number)
            assert self.numbers[job.id] == self.changes[job.source_id][-1], "an older change was claimed"
            assert self.numbers[job.id].action == job.action
        self.claimed += [(worker, job, now + int(self.bench.config.lease_s * 1000)) for job in claimed]
        return claimed

    def write(self, job: Job) -> None:
        change = self.numbers[job.id]
        assert change.number >= self.written.get(job.source_id, 0), "an older change was written after a newer one"
        self.written[job.source_id] = change.number
        if change.action == "put":
            self.index[job.source_id] = change
        else:
            self.index.pop(job.source_id, None)

    def finish(self, worker: str, job: Job) -> None:
        change = self.numbers[job.id]
        done = Done(job, "print" if change.action == "put" else "", 1, change.expires_at)
        self.run(self.bench.jobs.finish(worker, [done]))
        self.noted[job.source_id] = change
        if self.open.get(job.source_id) == change.number:
            del self.open[job.source_id]

    @rule(names=st.sets(st.sampled_from(SOURCES), min_size=1), lasts=st.sampled_from([0, 40, 400]))
    def submit(self, names: set[str], lasts: int) -> None:
        for name in sorted(names):
            expires_at = lasts and self.bench.clock() + lasts * 1000
            self.change(name, "put", expires_at)
            document = source(name, expires_at=expires_at)
            receipt = self.run(self.bench.queue.submit(ACCOUNT, CORPUS, [document], str(self.count)))
            self.receipts.append(receipt.receipt_id)

    @rule(name=st.sampled_from(SOURCES))
    def remove(self, name: str) -> None:
        self.change(name, "delete")
        receipt = self.run(self.bench.queue.submit_deletes(ACCOUNT, CORPUS, SPACE, [name], str(self.count)))
        self.receipts.append(receipt.receipt_id)

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 3))
    def take(self, worker: str, limit: int) -> None:
        self.claim(worker, limit)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), outcome=Outcomes)
    def end(self, data: st.DataObject, outcome: str) -> None:
        """What a worker does with a job, first confirming that it still has it, as the real one does."""
        worker, job, _ = entry = data.draw(st.sampled_from(self.claimed))
        self.claimed.remove(entry)
        held = self.run(self.bench.jobs.renew(worker, [job.id]))
        if outcome == "crash":
            self.claimed.append((worker, job, self.bench.clock() + 30_000 if held else 0))
            return
        if outcome in {"finish", "crash after the write"} and held:
            self.write(job)
        if outcome == "finish" and held:
            self.finish(worker, job)
        elif outcome == "crash after the write" and held:
            self.claimed.append((worker, job, self.bench.clock() + 30_000))
        elif outcome.startswith("fail"):
            self.run(self.bench.jobs.fail(worker, job, "write", "no", retry=outcome == "fail"))
        else:
            self.run(self.bench.jobs.release(worker, [job], "", ""))

    @rule(seconds=st.sampled_from([1, 5, 31, 500, 8 * 86_400]))
    def wait(self, seconds: int) -> None:
        self.bench.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        now = self.bench.clock()
        expired = [
            name for name, change in self.noted.items() if 0 < change.expires_at <= now and name not in self.open
        ]
        assert self.run(self.bench.jobs.sweep()) == len(expired)
        for name in expired:
            self.change(name, "delete")

    @rule()
    def prune(self) -> None:
        self.run(self.bench.jobs.prune())

    @rule()
    def retry(self) -> None:
        self.run(self.bench.failures.retry())

    @rule()
    def drop(self) -> None:
        """What is dropped was its source's newest change; it may have been written before all the same."""
        for failure in self.run(self.bench.failures.list()):
            assert self.open.pop(failure.source_id) == self.changes[failure.source_id][-1].number
            self.dropped.add(failure.source_id)
        self.run(self.bench.failures.drop())

    @invariant()
    def each_source_has_one_change_that_waits_at_most(self) -> None:
        """Pending or dead, and then it is the newest; one runs at most."""
        self.run(self.check())

    async def check(self) -> None:
        async with self.database.reading() as connection:
            rows = (await connection.execute(select(ingest_jobs).order_by(ingest_jobs.c.id))).all()
        for name in SOURCES:
            own = [row for row in rows if row.source_id == name]
            waiting = [row for row in own if row.state in {"pending", "dead"}]
            running = [row for row in own if row.state == "running"]
            assert len(waiting) <= 1
            assert not waiting or waiting == own[-1:]
            assert len(running) <= 1
            assert bool(waiting or (running and running == own[-1:])) == (name in self.open)


def test_any_order_of_events_loses_nothing_and_lets_the_newest_win(database_url: str) -> None:
    with asyncio.Runner() as runner:
        database = runner.run(Database.open(database_url, DatabaseConfig(migrate_at_start=True)))
        machine = type("Machine", (QueueMachine,), {"runner": runner, "database": database})
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
                ),
            )
        finally:
            runner.run(database.close())
