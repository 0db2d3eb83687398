"""What corpora answer, over stand-ins for their adapter, core and queue."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from contracts.context import RequestContext
from contracts.errors import DatabaseDown, InvalidBody, NotFound, StageFailed, StrataError, TargetForbidden
from contracts.filters import Eq
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import Receipt, Retrieved, RetrieveEvent, Scope, ShadowEvent, SourceDocument, SourceReceipt
from deployments.corpora.events import WriteEvent
from deployments.corpora.messages import DeleteSourcesRequest, IngestBatchRequest, RetrieveBatchRequest
from deployments.corpora.service import Corpora
from deployments.corpora.settings import CorporaHttp, CorporaServing, CorporaSettings
from tests.support.waiting import until

ALICE = RequestContext("acme", user_space="user:alice", request_id="r1")
HTTP = CorporaHttp(max_bodies=3, max_deletions=2, max_retrievals=2, max_wait_ms=50, max_waiting=1)


class FakeAdapter:
    """A corpus of one text a body."""

    name = "notes"

    def build_ingest_documents(self, ctx: RequestContext, raw: Any) -> list[SourceDocument]:
        if raw["space"] != ctx.user_space:
            raise TargetForbidden("Not there.", field="space")
        if raw["text"] == "bug":
            raise RuntimeError("secret text")
        return [SourceDocument(raw["id"], raw["space"], "note", "memory", text=raw["text"])]

    def build_retrieve_filter(self, ctx: RequestContext, raw: Any) -> Scope:
        if raw.get("space") != ctx.user_space:
            raise TargetForbidden("Not there.", field="space")
        return Scope(raw["space"], Eq("kind", "note"), "memory")

    def arrange(self, raw: Any, hits: Any) -> Any:
        return hits


class FakeQueue:
    """Remembers what is submitted."""

    def __init__(self) -> None:
        self.submitted: list[Any] = []
        self.error: StrataError | None = None
        self.settling = asyncio.Event()
        self.settled_error: StrataError | None = None
        self.waits: list[float] = []

    def _receipt(self, ids: Sequence[str], state: Any = "pending") -> Receipt:
        return Receipt("receipt", "notes", state, tuple(SourceReceipt(each, state) for each in ids))

    async def submit(self, account: str, corpus: str, documents: Sequence[SourceDocument], request_id: str) -> Receipt:
        if self.error:
            raise self.error
        self.submitted.append((account, corpus, [each.source_id for each in documents], request_id))
        return self._receipt([each.source_id for each in documents])

    async def submit_deletes(self, account: str, corpus: str, space: str, ids: Sequence[str], request_id: str) -> Any:
        self.submitted.append((account, corpus, space, list(ids), request_id))
        return self._receipt(ids)

    async def settled(self, account: str, receipt_id: str, seconds: float) -> Receipt:
        self.waits.append(seconds)
        await self.settling.wait()
        if self.settled_error:
            raise self.settled_error
        return self._receipt(["a"], "stored")

    async def receipt(self, account: str, receipt_id: str, request_id: str) -> Receipt | None:
        return self._receipt(["a"]) if (account, receipt_id) == ("acme", "receipt") else None


class FakeCore:
    """Fails where the query says so."""

    def __init__(self) -> None:
        self.timeouts: list[int | None] = []

    async def retrieve(self, ctx: RequestContext, corpus: str, request: RetrieveRequest) -> Retrieved:
        self.timeouts.append(request.timeout_ms)
        if request.query == "down":
            raise StageFailed("It is down.", stage="reader")
        if request.query == "bug":
            raise RuntimeError("secret text")
        return Retrieved(ctx.request_id, corpus, ())


class FakeObserver:
    """Remembers writes."""

    def __init__(self) -> None:
        self.writes: list[WriteEvent] = []

    def retrieved(self, event: RetrieveEvent) -> None: ...

    def shadowed(self, event: ShadowEvent) -> None: ...

    def wrote(self, event: WriteEvent) -> None:
        self.writes.append(event)


class Made:
    """Corpora with all their stand-ins."""

    def __init__(self) -> None:
        self.queue, self.core, self.observer, self.woken = FakeQueue(), FakeCore(), FakeObserver(), 0
        settings = CorporaSettings(serving=CorporaServing(http=HTTP))

        async def close() -> None: ...

        self.corpora = Corpora(
            {"notes": FakeAdapter()},  # type: ignore[dict-item]
            self.core,  # type: ignore[arg-type]
            self.queue,  # type: ignore[arg-type]
            settings,
            self.observer,
            self._wake,
            close,
        )

    def _wake(self) -> None:
        self.woken += 1

    async def ingest(self, wait_ms: int = 0, **changes: str) -> Receipt:
        return await self.corpora.ingest(ALICE, "notes", note(**changes), wait_ms)


def note(**changes: str) -> dict[str, str]:
    return {"id": "a", "space": "user:alice", "text": "A note."} | changes


@pytest.fixture
async def made() -> Made:
    return Made()


async def test_a_body_is_recorded_and_the_worker_woken(made: Made) -> None:
    assert (await made.ingest()).state == "pending"
    assert made.queue.submitted == [("acme", "notes", ["a"], "r1")]
    assert made.woken == 1
    (event,) = made.observer.writes
    assert (event.action, event.outcome, event.sources, event.trace_id) == ("ingest", "ok", 1, "r1")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({"space": "user:bob"}, TargetForbidden), ({"text": " "}, InvalidBody), ({"id": " "}, InvalidBody)],
)
async def test_a_refused_body_leaves_nothing_and_is_told_of(
    made: Made, changes: dict[str, str], kind: type[StrataError]
) -> None:
    with pytest.raises(kind):
        await made.ingest(**changes)
    assert (made.queue.submitted, made.woken) == ([], 0)
    assert made.observer.writes[0].outcome == kind.code


async def test_a_database_that_is_down_is_the_callers_error(made: Made) -> None:
    made.queue.error = DatabaseDown("down")
    with pytest.raises(DatabaseDown):
        await made.ingest()
    assert made.observer.writes[0].outcome == DatabaseDown.code


async def test_whoever_waits_gets_the_settled_receipt_with_its_own_id(made: Made) -> None:
    made.queue.settling.set()
    receipt = await made.ingest(wait_ms=10**9)
    assert (receipt.state, receipt.request_id) == ("stored", "r1")
    assert made.queue.waits == [HTTP.max_wait_ms / 1000]


async def test_what_goes_wrong_in_waiting_is_no_error_because_it_is_recorded(made: Made) -> None:
    made.queue.settling.set()
    made.queue.settled_error = DatabaseDown("down")
    assert (await made.ingest(wait_ms=10)).state == "pending"


async def test_only_so_many_wait_at_once(made: Made) -> None:
    first = asyncio.create_task(made.ingest(wait_ms=10))
    await until(lambda: made.queue.waits)
    assert (await made.ingest(wait_ms=10)).state == "pending"
    made.queue.settling.set()
    assert (await first).state == "stored"
    assert (await made.ingest(wait_ms=10)).state == "stored"


async def test_in_a_batch_each_body_is_judged_by_itself(made: Made) -> None:
    """A bug in an adapter costs one body, too, and tells nothing of it."""
    batch = IngestBatchRequest(requests=[note(), note(space="user:bob"), note(text="bug")])
    answer = await made.corpora.ingest_batch(ALICE, "notes", batch)
    assert made.queue.submitted == [("acme", "notes", ["a"], "r1")]
    assert answer.receipt is not None
    assert [(each.index, each.code) for each in answer.refused] == [(1, "RET-4031"), (2, "RET-5000")]
    assert b"secret" not in msgspec.json.encode(answer)
    assert (made.observer.writes[0].sources, made.observer.writes[0].refused) == (1, 2)


async def test_a_batch_without_one_right_body_has_no_receipt(made: Made) -> None:
    answer = await made.corpora.ingest_batch(ALICE, "notes", IngestBatchRequest(requests=[note(space="user:bob")]))
    assert (answer.receipt, len(answer.refused), made.queue.submitted) == (None, 1, [])
    assert (made.observer.writes[0].sources, made.observer.writes[0].refused, made.woken) == (0, 1, 0)


async def test_sources_are_deleted_where_their_caller_may_look(made: Made) -> None:
    await made.corpora.delete(
        ALICE, "notes", DeleteSourcesRequest(source_ids=["a", "b"], dimensions={"space": "user:alice"})
    )
    assert made.queue.submitted == [("acme", "notes", "user:alice", ["a", "b"], "r1")]
    with pytest.raises(TargetForbidden):
        await made.corpora.delete(
            ALICE, "notes", DeleteSourcesRequest(source_ids=["a"], dimensions={"space": "user:bob"})
        )
    assert len(made.queue.submitted) == 1


async def test_the_retrievals_of_a_batch_fail_each_by_itself_within_one_time(made: Made) -> None:
    requests = [RetrieveRequest(query="down", timeout_ms=20), RetrieveRequest(query="bug", timeout_ms=10**6)]
    batch = RetrieveBatchRequest(requests=requests, timeout_ms=100)
    answer = await made.corpora.retrieve_batch(ALICE, "notes", batch)
    assert [each.error.code for each in answer.results if each.error] == ["RET-5004", "RET-5000"]
    assert made.core.timeouts == [20, 100]
    assert b"secret" not in msgspec.json.encode(answer)


async def test_batches_are_bounded(made: Made) -> None:
    calls = (
        made.corpora.ingest_batch(ALICE, "notes", IngestBatchRequest(requests=[note()] * 4)),
        made.corpora.retrieve_batch(ALICE, "notes", RetrieveBatchRequest(requests=[RetrieveRequest(query="x")] * 3)),
        made.corpora.delete(ALICE, "notes", DeleteSourcesRequest(source_ids=["x"] * 3)),
    )
    for call in calls:
        with pytest.raises(InvalidBody):
            await call
    assert made.queue.submitted == []
    assert [(event.action, event.outcome) for event in made.observer.writes] == [
        ("ingest_batch", "RET-4220"),
        ("delete", "RET-4220"),
    ]


async def test_an_unknown_corpus_or_receipt_is_not_found(made: Made) -> None:
    calls = (
        made.corpora.ingest(ALICE, "other", note()),
        made.corpora.retrieve(ALICE, "other", RetrieveRequest(query="x")),
        made.corpora.receipt(ALICE, "other", "receipt"),
        made.corpora.receipt(ALICE, "notes", "another"),
        made.corpora.receipt(msgspec.structs.replace(ALICE, account_id="rival"), "notes", "receipt"),
    )
    for call in calls:
        with pytest.raises(NotFound):
            await call
    assert (await made.corpora.receipt(ALICE, "notes", "receipt")).receipt_id == "receipt"
