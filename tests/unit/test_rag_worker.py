"""The worker of the ingest (R2): steps done together, failures kept apart, the index held only while there is work."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from contracts.errors import DatabaseDown, InvalidInput, StageFailed
from corpora.rag.documents import SourceChunker
from corpora.rag.ingest_rows import now_ms
from corpora.rag.jobs import Job
from corpora.rag.worker import IngestWorker
from database.engine import Database
from tests.support.ingest import ACCOUNT, CORPUS, SPACE, names
from tests.support.ingest_rig import Rig
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def rig(database: Database) -> Rig:
    return Rig(database)


@pytest.fixture
async def running(database: Database) -> AsyncIterator[Callable[..., Rig]]:
    """Makes rigs whose worker runs, by the real clock, until the test ends."""
    async with AsyncExitStack() as stack:

        def start(**settings: Any) -> Rig:
            rig = Rig(database, now_ms, **({"poll_s": 3600, "idle_s": 3600} | settings))
            task = asyncio.create_task(rig.worker.run())

            async def stop() -> None:
                rig.worker.stop()
                await task

            stack.push_async_callback(stop)
            return rig

        yield start


async def test_sources_of_a_batch_are_embedded_in_one_call_and_written_in_one_put_a_space(rig: Rig) -> None:
    await rig.put("a", "b")
    await rig.put("c", space="shared")
    await rig.worker.drain()
    assert len(rig.embedder.calls) == 1
    assert sorted(map(sorted, rig.index.puts)) == [["a", "b"], ["c"]]
    assert rig.results() == dict.fromkeys("abc", "done")
    assert [each.source_id for each in await rig.queue.sources(ACCOUNT, CORPUS, SPACE)] == ["a", "b"]


async def test_a_removed_source_leaves_index_and_registry(rig: Rig) -> None:
    await rig.put("a", "b")
    await rig.worker.drain()
    receipt = await rig.delete("a", "never-there")
    await rig.worker.drain()
    assert rig.index.ids() == ["b"]
    assert [each.source_id for each in await rig.queue.sources(ACCOUNT, CORPUS, SPACE)] == ["b"]
    assert await rig.state(receipt) == "stored"


async def test_a_source_that_the_index_refuses_fails_alone_and_at_once(rig: Rig) -> None:
    def refuse(ids: list[str]) -> None:
        if "bad" in ids:
            raise InvalidInput("URI belongs to another source.", field="uri")

    rig.index.refuses = refuse
    await rig.put("a", "bad", "b")
    await rig.worker.drain()
    assert rig.results() == {"a": "done", "b": "done", "bad": "dead"}
    (failure,) = await rig.failures.list()
    assert (failure.source_id, failure.step, failure.attempts) == ("bad", "write", 1)
    assert failure.reason.startswith("RET-4006: URI belongs to another source.")


async def test_a_source_that_can_not_be_embedded_fails_alone_and_tells_nothing_of_its_text(rig: Rig) -> None:
    async def choke(texts: Sequence[str]) -> None:
        if any("secret" in text for text in texts):
            raise ValueError("can't take 'secret'")

    rig.embedder.on_call = choke
    await rig.put("a", "b")
    await rig.put("bad", text="A secret.")
    await rig.worker.drain()
    assert rig.results() == {"a": "done", "b": "done", "bad": "retry"}
    for _ in range(2):
        rig.clock.advance(100)
        await rig.worker.drain()
    (failure,) = await rig.failures.list()
    assert (failure.step, failure.reason, failure.attempts) == ("embed", "ValueError", 3)


async def test_a_source_that_can_not_be_cut_fails_alone(rig: Rig) -> None:
    class Fragile(SourceChunker):
        def chunk(self, corpus: str, document: Any) -> Any:
            if document.source_id == "bad":
                raise InvalidInput("It has no beginning.")
            return super().chunk(corpus, document)

    worker = IngestWorker(rig.jobs, Fragile(), rig.embedder, rig.index.open, rig.config)
    await rig.put("a", "bad")
    await worker.drain()
    assert rig.index.ids() == ["a"]
    assert [failure.step for failure in await rig.failures.list()] == ["chunk"]


async def test_in_an_outage_few_sources_are_charged_and_the_rest_wait_untouched(rig: Rig) -> None:
    async def down(_: Sequence[str]) -> None:
        raise StageFailed("The embedder is down.", stage="embedder")

    rig.embedder.on_call = down
    receipt = await rig.put(*(f"s{number}" for number in range(9)))
    await rig.worker.drain()
    assert list(rig.results().values()) == ["retry"] * 3
    assert "The embedder is down." in rig.worker.trouble
    found = await rig.queue.receipt(ACCOUNT, receipt.receipt_id)
    assert found
    assert all("The embedder is down." in part.reason for part in found.sources)

    rig.embedder.on_call = None
    rig.clock.advance(100)
    await rig.worker.drain()
    assert await rig.state(receipt) == "stored"
    assert sorted(outcome.job.attempts for outcome in rig.outcomes[3:]) == [1] * 6 + [2] * 3
    assert rig.worker.trouble == ""


async def test_what_is_stored_as_it_is_is_not_embedded_again(rig: Rig) -> None:
    await rig.put("a", "b")
    await rig.worker.drain()
    receipt = await rig.put("a", "b", "c")
    await rig.worker.drain()
    assert rig.results() == {"a": "unchanged", "b": "unchanged", "c": "done"}
    assert len(rig.embedder.calls) == 2
    assert len(rig.embedder.calls[1]) == 1
    assert await rig.state(receipt) == "stored"


async def test_what_the_index_has_lost_is_written_again_though_the_registry_has_it(rig: Rig) -> None:
    await rig.put("a")
    await rig.worker.drain()
    rig.index.stored.clear()
    await rig.put("a")
    await rig.worker.drain()
    assert rig.index.ids() == ["a"]


async def test_while_another_process_writes_nothing_is_charged_and_the_receipt_says_why(rig: Rig) -> None:
    rig.index.held_by_another = True
    receipt = await rig.put("a")
    for _ in range(2 * rig.config.max_attempts):
        await rig.worker.drain()
        rig.clock.advance(100)
    found = await rig.queue.receipt(ACCOUNT, receipt.receipt_id)
    assert found
    assert (found.state, "Process 7 is writing" in found.sources[0].reason) == ("pending", True)
    rig.index.held_by_another = False
    await rig.worker.drain()
    assert await rig.state(receipt) == "stored"


async def test_a_database_that_is_down_when_work_is_done_has_it_done_again(rig: Rig) -> None:
    receipt = await rig.put("a")
    finish = rig.jobs.finish

    async def down(*_: object) -> None:
        raise DatabaseDown("The database can't be asked.")

    rig.jobs.finish = down  # type: ignore[method-assign, assignment]
    await rig.worker.drain()
    assert "The database can't be asked." in rig.worker.trouble
    rig.jobs.finish = finish  # type: ignore[method-assign]
    rig.clock.advance(100)
    await rig.worker.drain()
    assert await rig.state(receipt) == "stored"
    assert rig.index.puts == [["a"], ["a"]]


async def test_a_worker_whose_job_was_given_to_another_writes_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Job] = []

    async def sleep_long(_: Sequence[str]) -> None:
        rig.clock.advance(rig.config.lease_s)
        taken.extend(await rig.jobs.claim("another", 10))

    # As after a pause of the whole process: no lease counts as fresh.
    monkeypatch.setattr("corpora.rag.batch._FRESH", 0.0)
    rig.embedder.on_call = sleep_long
    await rig.put("a")
    await rig.worker.drain()
    assert names(taken) == ["a"]
    assert (rig.index.puts, rig.outcomes) == ([], [])
    assert await rig.jobs.renew("another", [taken[0].id]) == {taken[0].id}


async def test_leases_are_renewed_while_a_step_takes_long(running: Callable[..., Rig]) -> None:
    rig = running(lease_s=0.5)
    renewals = 0
    renew = rig.jobs.renew

    async def counted(owner: str, ids: Any) -> set[int]:
        nonlocal renewals
        kept = await renew(owner, ids)
        renewals += len(kept)
        return kept

    async def long(_: Sequence[str]) -> None:
        await until(lambda: renewals >= 6)

    rig.jobs.renew = counted  # type: ignore[method-assign]
    rig.embedder.on_call = long
    receipt = await rig.put("a")
    rig.worker.wake()
    found = await rig.queue.settled(ACCOUNT, receipt.receipt_id, 60)
    assert found
    assert found.state == "stored"
    assert [outcome.job.attempts for outcome in rig.outcomes] == [1]


async def test_work_stops_before_a_lease_ends_that_can_not_be_renewed(running: Callable[..., Rig]) -> None:
    rig = running(lease_s=0.5, backoff_s=0.01)
    written: list[int] = []

    async def down(*_: object) -> set[int]:
        raise DatabaseDown("The database can't be asked.")

    async def hang(_: Sequence[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            written.append(len(rig.index.puts))
            rig.embedder.on_call = None
            rig.jobs.renew = renew  # type: ignore[method-assign]

    renew, rig.jobs.renew = rig.jobs.renew, down  # type: ignore[method-assign, assignment]
    rig.embedder.on_call = hang
    receipt = await rig.put("a")
    rig.worker.wake()
    found = await rig.queue.settled(ACCOUNT, receipt.receipt_id, 60)
    assert found
    assert (found.state, written) == ("stored", [0])


async def test_a_woken_worker_looks_at_once_and_keeps_the_index_until_it_is_idle(running: Callable[..., Rig]) -> None:
    rig = running()
    for number in range(3):
        receipt = await rig.put(f"s{number}")
        rig.worker.wake()
        found = await rig.queue.settled(ACCOUNT, receipt.receipt_id, 60)
        assert found
        assert found.state == "stored"
    assert (rig.index.opened, rig.index.closed) == (1, 0)


async def test_an_idle_worker_lets_others_write_and_tidies_up_before(running: Callable[..., Rig]) -> None:
    rig = running(idle_s=0)
    assert rig.index.opened == 0
    for number in (1, 2):
        await rig.put(f"s{number}")
        rig.worker.wake()
        await until(lambda number=number: rig.index.closed == number)
        assert (rig.index.opened, rig.index.optimized) == (number, number)


async def test_a_worker_finds_what_nobody_told_it_of(running: Callable[..., Rig]) -> None:
    rig = running(poll_s=0.01)
    receipt = await rig.put("a")
    found = await rig.queue.settled(ACCOUNT, receipt.receipt_id, 60)
    assert found
    assert found.state == "stored"


async def test_a_worker_that_could_not_write_goes_on_by_itself(running: Callable[..., Rig]) -> None:
    rig = running(backoff_s=0.01)
    rig.index.held_by_another = True
    receipt = await rig.put("a")
    rig.worker.wake()
    await until(lambda: rig.worker.trouble)
    rig.index.held_by_another = False
    found = await rig.queue.settled(ACCOUNT, receipt.receipt_id, 60)
    assert found
    assert (found.state, rig.worker.trouble) == ("stored", "")


async def test_expired_sources_are_swept_by_the_worker(running: Callable[..., Rig]) -> None:
    """R4: what has expired leaves the index too."""
    rig = running(poll_s=0.01, sweep_s=0.01)
    await rig.put("gone", expires_at=1)
    await rig.put("stays")
    await until(lambda: rig.index.ids() == ["stays"] and rig.results().get("stays"))


async def test_a_stopped_worker_finishes_what_it_has_claimed(rig: Rig) -> None:
    async def stop(_: Sequence[str]) -> None:
        rig.worker.stop()

    rig.embedder.on_call = stop
    receipt = await rig.put("a")
    await rig.worker.run()
    assert await rig.state(receipt) == "stored"
    assert (rig.index.opened, rig.index.closed) == (1, 1)


async def test_a_cancelled_worker_gives_back_what_it_holds(rig: Rig) -> None:
    started = asyncio.Event()

    async def hang(_: Sequence[str]) -> None:
        started.set()
        await asyncio.Event().wait()

    rig.embedder.on_call = hang
    await rig.put("a")
    task = asyncio.create_task(rig.worker.run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.index.closed == 1
    (job,) = await rig.jobs.claim("another", 10)
    assert job.attempts == 1
