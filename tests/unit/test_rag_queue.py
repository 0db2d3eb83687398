"""The durable queue of the ingest (R2), on SQLite and PostgreSQL."""

import asyncio

import pytest
from sqlalchemy import func, select

from contracts.errors import InvalidBody, Overloaded
from corpora.rag.jobs import VANISHED
from database.engine import Database
from database.tables import ingest_jobs
from tests.support.ingest import ACCOUNT, CORPUS, SPACE, Bench, names, source
from tests.support.waiting import until

DAY_S = 86_400.0


@pytest.fixture
def bench(database: Database) -> Bench:
    return Bench(database)


async def rows(bench: Bench, state: str) -> int:
    async with bench.database.reading() as connection:
        counted = select(func.count()).select_from(ingest_jobs).where(ingest_jobs.c.state == state)
        return (await connection.execute(counted)).scalar_one()


async def test_a_submission_is_stored_once_a_worker_has_finished_it(bench: Bench) -> None:
    receipt = await bench.put("a", "b")
    assert (receipt.state, [part.source_id for part in receipt.sources]) == ("pending", ["a", "b"])
    assert await bench.work(chunks=4) == ["a", "b"]
    found = await bench.queue.receipt(ACCOUNT, receipt.receipt_id, "asked-1")
    assert found
    assert (found.state, found.corpus, found.request_id) == ("stored", CORPUS, "asked-1")
    assert [(part.source_id, part.state, part.chunks) for part in found.sources] == [
        ("a", "stored", 4),
        ("b", "stored", 4),
    ]


async def test_a_submission_with_one_source_that_can_not_be_stored_records_nothing(bench: Bench) -> None:
    with pytest.raises(InvalidBody):
        await bench.queue.submit(ACCOUNT, CORPUS, [source("a"), source("b", " ")])
    with pytest.raises(InvalidBody):
        await bench.queue.submit(ACCOUNT, CORPUS, [])
    assert await bench.jobs.next_due() is None


async def test_of_two_sources_with_one_id_the_last_counts(bench: Bench) -> None:
    receipt = await bench.queue.submit(ACCOUNT, CORPUS, [source("a", "old"), source("b"), source("a", "new")])
    assert [part.source_id for part in receipt.sources] == ["a", "b"]
    claimed = await bench.jobs.claim("worker", 10)
    assert {job.source_id: job.document().text for job in claimed} == {"a": "new", "b": "A text."}


async def test_a_newer_change_takes_the_place_of_one_that_waits(bench: Bench) -> None:
    old = await bench.put("a", text="old")
    new = await bench.delete("a")
    (job,) = await bench.jobs.claim("worker", 10)
    assert job.action == "delete"
    assert await bench.state(old) == "pending"
    await bench.finish("worker", [job])
    assert (await bench.state(old), await bench.state(new)) == ("stored", "stored")


async def test_a_source_in_work_keeps_its_next_change_waiting_and_no_other(bench: Bench) -> None:
    await bench.put("a", text="first")
    (first,) = await bench.jobs.claim("one", 10)
    await bench.put("a", text="second")
    await bench.put("b")
    assert names(await bench.jobs.claim("two", 10)) == ["b"]
    await bench.finish("one", [first])
    (second,) = await bench.jobs.claim("two", 10)
    assert (second.document().text, second.stored) == ("second", "print")


async def test_the_same_id_in_another_account_corpus_or_space_is_another_source(bench: Bench) -> None:
    await bench.put("a")
    await bench.put("a", account="rival")
    await bench.put("a", corpus="web")
    await bench.put("a", space="shared")
    assert len(await bench.jobs.claim("worker", 10)) == 4


async def test_workers_that_claim_at_once_share_the_jobs_out(bench: Bench) -> None:
    expected = [f"s{number:02}" for number in range(40)]
    await bench.put(*expected)
    claimed = await asyncio.gather(*(bench.jobs.claim(f"worker {number}", 10) for number in range(4)))
    # A worker that finds rows of another locked may come away with fewer, never with the same.
    rest = await bench.jobs.claim("last", 100)
    assert sorted(names([job for part in (*claimed, rest) for job in part])) == expected


async def test_submissions_of_one_source_at_once_leave_one_to_do_and_it_is_the_newest(bench: Bench) -> None:
    await asyncio.gather(*(bench.put("a", "b", text=f"text {number}") for number in range(12)))
    async with bench.database.reading() as connection:
        newest = select(func.max(ingest_jobs.c.id)).group_by(ingest_jobs.c.source_id)
        ids = set((await connection.execute(newest)).scalars())
    claimed = await bench.jobs.claim("worker", 100)
    assert sorted(names(claimed)) == ["a", "b"]
    assert {job.id for job in claimed} == ids
    assert await rows(bench, "superseded") == 22


async def test_jobs_come_in_the_order_in_which_they_fell_due(bench: Bench) -> None:
    for name in "cab":
        await bench.put(name)
        bench.clock.advance(1)
    assert [names(await bench.jobs.claim("worker", 1)) for _ in range(3)] == [["c"], ["a"], ["b"]]


async def test_jobs_of_a_worker_that_vanished_come_again_one_by_one(bench: Bench) -> None:
    await bench.put("a", "b")
    assert len(await bench.jobs.claim("gone", 10)) == 2
    assert await bench.jobs.claim("two", 10) == []
    assert await bench.jobs.next_due() == 30
    bench.clock.advance(30)
    (first,) = await bench.jobs.claim("two", 10)
    (second,) = await bench.jobs.claim("two", 10)
    assert {first.source_id, second.source_id} == {"a", "b"}
    assert (first.attempts, second.attempts) == (2, 2)


async def test_a_vanished_worker_s_change_is_not_done_again_when_there_is_a_newer_one(bench: Bench) -> None:
    await bench.put("a", text="old")
    await bench.jobs.claim("gone", 10)
    await bench.put("a", text="new")
    bench.clock.advance(30)
    (job,) = await bench.jobs.claim("two", 10)
    assert job.document().text == "new"
    assert await bench.jobs.claim("three", 10) == []
    assert await rows(bench, "superseded") == 1


async def test_a_source_whose_workers_keep_vanishing_is_put_aside(bench: Bench) -> None:
    receipt = await bench.put("poison")
    for _ in range(bench.config.max_attempts):
        assert names(await bench.jobs.claim("gone", 10)) == ["poison"]
        bench.clock.advance(30)
    assert await bench.jobs.claim("last", 10) == []
    assert await bench.state(receipt) == "failed"
    (failure,) = await bench.failures.list()
    assert (failure.reason, failure.attempts) == (VANISHED, 3)


async def test_a_renewed_lease_holds_on_and_a_lost_one_is_told(bench: Bench) -> None:
    await bench.put("a", "b")
    one = await bench.jobs.claim("one", 10)
    ids = {job.id for job in one}
    bench.clock.advance(20)
    assert await bench.jobs.renew("one", ids) == ids
    bench.clock.advance(20)
    assert await bench.jobs.claim("two", 10) == []
    bench.clock.advance(20)
    (taken,) = await bench.jobs.claim("two", 10)
    assert await bench.jobs.renew("one", ids) == ids - {taken.id}


async def test_who_lost_a_job_can_not_end_it(bench: Bench) -> None:
    receipt = await bench.put("a")
    (lost,) = await bench.jobs.claim("slow", 10)
    bench.clock.advance(30)
    (job,) = await bench.jobs.claim("quick", 10)
    await bench.finish("slow", [lost])
    await bench.jobs.fail("slow", lost, "write", "too late", retry=False)
    await bench.jobs.release("slow", [lost], "", "")
    assert await bench.jobs.renew("quick", [job.id]) == {job.id}
    assert await bench.state(receipt) == "pending"
    assert await bench.queue.sources(ACCOUNT, CORPUS, SPACE) == []


async def test_a_failure_is_tried_again_after_growing_pauses_and_then_put_aside(bench: Bench) -> None:
    receipt = await bench.put("a")
    for pause in (1, 2):
        (job,) = await bench.jobs.claim("worker", 10)
        assert await bench.jobs.fail("worker", job, "embed", "RET-5004: it broke.", retry=True)
        assert await bench.jobs.next_due() == pause
        found = await bench.queue.receipt(ACCOUNT, receipt.receipt_id)
        assert found
        assert (found.sources[0].state, found.sources[0].reason) == ("pending", "RET-5004: it broke.")
        bench.clock.advance(pause)
    (job,) = await bench.jobs.claim("worker", 10)
    assert not await bench.jobs.fail("worker", job, "write", "RET-5004: it broke again.", retry=True)
    assert await bench.jobs.next_due() is None
    assert await bench.state(receipt) == "failed"
    (failure,) = await bench.failures.list()
    assert (failure.source_id, failure.step, failure.attempts) == ("a", "write", 3)


async def test_pauses_grow_to_a_limit_and_differ_by_chance_by_half(database: Database) -> None:
    bench = Bench(database, max_attempts=100, max_backoff_s=8)
    bench.jobs._chance = lambda: 0.0
    await bench.put("a")
    pauses = []
    for _ in range(5):
        (job,) = await bench.jobs.claim("worker", 1)
        await bench.jobs.fail("worker", job, "embed", "no", retry=True)
        pauses.append(await bench.jobs.next_due())
        bench.clock.advance(pauses[-1] or 0)
    assert pauses == [0.5, 1, 2, 4, 4]


async def test_what_no_retry_can_mend_is_put_aside_at_once(bench: Bench) -> None:
    await bench.put("a")
    (job,) = await bench.jobs.claim("worker", 10)
    assert not await bench.jobs.fail("worker", job, "chunk", "RET-4220: no text.", retry=False)
    assert [failure.step for failure in await bench.failures.list()] == ["chunk"]


async def test_a_change_that_fails_when_a_newer_one_waits_makes_room_for_it(bench: Bench) -> None:
    old = await bench.put("a", text="old")
    (job,) = await bench.jobs.claim("worker", 10)
    await bench.put("a", text="new")
    await bench.jobs.fail("worker", job, "write", "no", retry=False)
    (job,) = await bench.jobs.claim("worker", 10)
    assert job.document().text == "new"
    assert await bench.failures.list() == []
    await bench.finish("worker", [job])
    assert await bench.state(old) == "stored"


async def test_a_released_job_comes_again_as_if_it_had_not_been_claimed(bench: Bench) -> None:
    receipt = await bench.put("a")
    for _ in range(2 * bench.config.max_attempts):
        (job,) = await bench.jobs.claim("worker", 10)
        assert job.attempts == 1
        await bench.jobs.release("worker", [job], "write", "Process 7 is writing.", pause_s=5)
        assert await bench.jobs.next_due() == 5
        bench.clock.advance(5)
    found = await bench.queue.receipt(ACCOUNT, receipt.receipt_id)
    assert found
    assert found.sources[0].reason == "Process 7 is writing."


async def test_finished_work_leaves_no_text_behind(bench: Bench) -> None:
    await bench.put("a", text="old")
    await bench.put("a", text="new")
    await bench.work()
    async with bench.database.reading() as connection:
        kept = select(func.count()).select_from(ingest_jobs).where(ingest_jobs.c.payload.is_not(None))
        assert (await connection.execute(kept)).scalar_one() == 0


async def test_a_receipt_is_its_account_s_own(bench: Bench) -> None:
    receipt = await bench.put("a")
    assert await bench.queue.receipt("rival", receipt.receipt_id) is None
    assert await bench.queue.receipt(ACCOUNT, "0" * 32) is None


async def test_more_than_may_wait_is_refused_whole_and_only_for_its_account(database: Database) -> None:
    bench = Bench(database, max_backlog=3)
    await bench.put("a", "b")
    with pytest.raises(Overloaded) as refused:
        await bench.put("c", "d")
    assert refused.value.retry_after > 0
    await bench.put("a", "b", "c")
    await bench.put("a", "b", "c", account="rival")
    assert sorted(names(await bench.jobs.claim("worker", 100))) == ["a", "a", "b", "b", "c", "c"]


async def test_failures_are_listed_retried_and_dropped_by_corpus_and_account(bench: Bench) -> None:
    await bench.put("a", "b")
    await bench.put("c", corpus="web")
    dropped = await bench.put("d", account="rival")
    for job in await bench.jobs.claim("worker", 10):
        await bench.jobs.fail("worker", job, "embed", "no", retry=False)
    assert [failure.source_id for failure in await bench.failures.list("web")] == ["c"]
    first, *rest = await bench.failures.list(CORPUS)
    assert await bench.failures.list(CORPUS, after=first.id) == rest

    assert await bench.failures.retry([first.id]) == 1
    assert await bench.failures.retry(corpus="web") == 1
    assert await bench.failures.drop(account_id="rival") == 1
    claimed = await bench.jobs.claim("worker", 10)
    assert sorted(names(claimed)) == sorted([first.source_id, "c"])
    assert {job.attempts for job in claimed} == {1}
    assert len(await bench.failures.list()) == 1
    assert await bench.state(dropped, "rival") == "failed"


async def test_a_newer_change_mends_a_failed_source(bench: Bench) -> None:
    failed = await bench.put("a", text="bad")
    (job,) = await bench.jobs.claim("worker", 10)
    await bench.jobs.fail("worker", job, "chunk", "no", retry=False)
    await bench.put("a", text="good")
    assert await bench.failures.list() == []
    await bench.work()
    assert await bench.state(failed) == "stored"


async def test_sources_lists_what_is_stored_in_a_space_page_by_page(bench: Bench) -> None:
    await bench.put("a", "b", "c")
    await bench.put("x", space="user:bob")
    assert await bench.queue.sources(ACCOUNT, CORPUS, SPACE) == []
    await bench.work(chunks=2, expires_at=9)
    await bench.delete("b")
    await bench.work()
    first, *rest = await bench.queue.sources(ACCOUNT, CORPUS, SPACE)
    assert (first.source_id, first.chunks, first.expires_at, [each.source_id for each in rest]) == ("a", 2, 9, ["c"])
    assert await bench.queue.sources(ACCOUNT, CORPUS, SPACE, after="a") == rest
    assert await bench.queue.sources("rival", CORPUS, SPACE) == []


async def test_an_expired_source_is_swept_and_one_with_newer_work_is_not(bench: Bench) -> None:
    """R4: ttl_at."""
    end = bench.clock() + 60_000
    await bench.put("gone", "renewed", "failed")
    await bench.work(expires_at=end)
    await bench.put("lasting")
    await bench.work()
    assert await bench.jobs.sweep() == 0
    bench.clock.advance(60)
    await bench.put("failed")
    (job,) = await bench.jobs.claim("worker", 10)
    await bench.jobs.fail("worker", job, "embed", "no", retry=False)
    await bench.put("renewed")
    assert await bench.jobs.sweep() == 1
    assert await bench.jobs.sweep() == 0
    assert {job.source_id: job.action for job in await bench.jobs.claim("worker", 10)} == {
        "gone": "delete",
        "renewed": "put",
    }


async def test_what_is_over_is_forgotten_after_a_while_and_what_failed_later(bench: Bench) -> None:
    done = await bench.put("a")
    await bench.work()
    await bench.delete("a")
    await bench.work()
    failed = await bench.put("b")
    (job,) = await bench.jobs.claim("worker", 10)
    await bench.jobs.fail("worker", job, "embed", "no", retry=False)
    await bench.put("waits")

    bench.clock.advance(bench.config.retention_days * DAY_S + 1)
    assert await bench.jobs.prune() == 2
    assert await bench.queue.receipt(ACCOUNT, done.receipt_id) is None
    assert await bench.state(failed) == "failed"
    bench.clock.advance(bench.config.dead_retention_days * DAY_S)
    assert await bench.jobs.prune() == 1
    assert names(await bench.jobs.claim("worker", 10)) == ["waits"]


async def test_the_backlog_counts_what_is_not_done_by_corpus_and_state(bench: Bench) -> None:
    await bench.put("a", "b", "c")
    await bench.put("x", corpus="web")
    await bench.work()
    await bench.put("a", "b", "c")
    await bench.put("x", corpus="web")
    dead, *_ = await bench.jobs.claim("worker", 2)
    await bench.jobs.fail("worker", dead, "embed", "no", retry=False)
    bench.clock.advance(7)
    backlog = await bench.queue.backlog()
    assert sum(part.jobs for part in backlog) == 4
    assert {part.state for part in backlog} == {"pending", "running", "dead"}
    assert {part.oldest_ms for part in backlog} == {7000}


async def test_waiting_for_a_receipt_ends_when_it_is_settled_or_when_the_time_is_over(bench: Bench) -> None:
    receipt = await bench.put("a")
    late = await bench.queue.settled(ACCOUNT, receipt.receipt_id, timeout_s=0)
    assert late
    assert late.state == "pending"
    waiting = asyncio.create_task(bench.queue.settled(ACCOUNT, receipt.receipt_id, timeout_s=60))
    await until(bench.work)
    found = await waiting
    assert found
    assert found.state == "stored"
    assert await bench.queue.settled("rival", receipt.receipt_id, timeout_s=60) is None
