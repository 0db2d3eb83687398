"""Bulk writes on a stand-in for the client that answers as it is told."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import pytest
from elastic_transport import ApiResponseMeta, ConnectionTimeout, HttpHeaders
from elastic_transport import ConnectionError as NoConnection
from elasticsearch import ApiError
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidInput, StageFailed
from index.elastic.bulk import Bulk, Operation, WriteBlocked
from index.elastic.config import WriteConfig

Answer = dict[str, Any]
BUSY: Answer = {"status": 429, "error": {"type": "es_rejected_execution_exception"}}
BLOCKED: Answer = {"status": 403, "error": {"type": "cluster_block_exception"}}
CONFIG = WriteConfig(bulk_bytes=10_000, in_flight=2, attempts=3, backoff_ms=100, max_backoff_ms=1_000)


def wrong(kind: str = "document_parsing_exception") -> Answer:
    return {"status": 400, "error": {"type": kind, "reason": "quotes the document"}}


def api_error(status: int, kind: str) -> ApiError:
    return ApiError(kind, ApiResponseMeta(status, "1.1", HttpHeaders(), 0.0, None), {"error": {"type": kind}})  # type: ignore[arg-type]


class FakeClient:
    """Takes bulk requests; ``answer`` gives each item's answer, or raises for the whole request."""

    def __init__(self, answer: Callable[[str, int], Answer] = lambda id, times: {"status": 201}) -> None:
        self.answer = answer
        self.requests: list[list[bytes]] = []
        self.sent: Counter[str] = Counter()
        self.under_way = 0
        self.most_under_way = 0
        self.full = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    def options(self, **options: Any) -> Self:
        return self

    async def bulk(self, *, operations: list[bytes], filter_path: str) -> Answer:
        self.requests.append(operations)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if self.under_way == CONFIG.in_flight:
            self.full.set()
        try:
            await self.gate.wait()
            items = []
            for lines in operations:
                ((action, target),) = json.loads(lines.splitlines()[0]).items()
                self.sent[target["_id"]] += 1
                items.append({action: self.answer(target["_id"], self.sent[target["_id"]])})
            return {"errors": any("error" in answer for item in items for answer in item.values()), "items": items}
        finally:
            self.under_way -= 1


class FakeSleep:
    """Notes how long was to be waited, and waits not at all."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


def operations(count: int, size: int = 10) -> Iterator[Operation]:
    return (Operation("index", "nodes", str(i), document={"text": "x" * size}) for i in range(count))


async def write(client: FakeClient, *given: Operation, config: WriteConfig = CONFIG) -> FakeSleep:
    sleep = FakeSleep()
    await Bulk(client, config, sleep).write(given)  # type: ignore[arg-type]
    return sleep


async def test_each_operation_is_sent_once_in_requests_of_the_size_set() -> None:
    client = FakeClient()
    await write(client, *operations(100, size=1_000))
    assert client.sent == Counter(str(i) for i in range(100))
    assert all(sum(map(len, request)) <= CONFIG.bulk_bytes for request in client.requests)
    assert len(client.requests) < 15


async def test_what_is_larger_than_a_request_goes_alone() -> None:
    client = FakeClient()
    await write(client, *operations(1), *operations(1, size=20_000), *operations(1))
    assert [len(request) for request in client.requests] == [1, 1, 1]


async def test_many_short_operations_are_split_too() -> None:
    client = FakeClient()
    config = CONFIG.model_copy(update={"bulk_bytes": 100_000_000})
    await write(client, *(Operation("delete", "nodes", str(i)) for i in range(10_001)), config=config)
    assert [len(request) for request in client.requests] == [5_000, 5_000, 1]


async def test_nothing_to_do_asks_nothing() -> None:
    client = FakeClient()
    await write(client)
    assert client.requests == []


@pytest.mark.parametrize(
    ("operation", "lines"),
    [
        (
            Operation("index", "nodes", "1", "acme", {"v": np.array([1, 0.5], dtype=np.float32)}),
            [{"index": {"_index": "nodes", "_id": "1", "routing": "acme"}}, {"v": [1.0, 0.5]}],
        ),
        (
            Operation("upsert", "nodes", "1", document={"a": "中"}),
            [{"update": {"_index": "nodes", "_id": "1"}}, {"doc": {"a": "中"}, "doc_as_upsert": True}],
        ),
        (
            Operation("delete", "nodes", "1", version=2),
            [{"delete": {"_index": "nodes", "_id": "1", "version": 2, "version_type": "external_gte"}}],
        ),
        (Operation("delete", "nodes", "1"), [{"delete": {"_index": "nodes", "_id": "1"}}]),
    ],
)
async def test_operations_are_written_as_lines(operation: Operation, lines: list[Any]) -> None:
    client = FakeClient()
    await write(client, operation)
    assert client.requests[0][0].endswith(b"\n")
    assert list(map(json.loads, client.requests[0][0].splitlines())) == lines


async def test_only_what_the_cluster_was_too_busy_for_is_sent_again() -> None:
    client = FakeClient(lambda id, times: BUSY if id == "3" and times < 3 else {"status": 201})
    sleep = await write(client, *operations(5))
    assert client.sent == {"0": 1, "1": 1, "2": 1, "3": 3, "4": 1}
    assert len(sleep.waits) == 2


@pytest.mark.parametrize(
    "error",
    [
        api_error(503, "cluster_block_exception"),
        api_error(429, "es_rejected"),
        NoConnection("lost"),
        ConnectionTimeout("late"),
    ],
)
async def test_a_whole_request_that_was_refused_or_lost_is_sent_again(error: Exception) -> None:
    def answer(id: str, times: int) -> Answer:
        if times == 1:
            raise error
        return {"status": 200}

    client = FakeClient(answer)
    sleep = await write(client, *operations(1))
    assert client.sent == {"0": 2}
    assert len(sleep.waits) == 1


async def test_patience_ends_after_the_attempts_set_and_names_what_is_left() -> None:
    client = FakeClient(lambda id, times: BUSY if id == "1" else {"status": 201})
    with pytest.raises(
        StageFailed, match=r"1 of the records: 1 \(HTTP 429 es_rejected_execution_exception\)"
    ) as caught:
        await write(client, *operations(3))
    assert client.sent["1"] == CONFIG.attempts
    assert caught.value.stage == "ingest"
    assert "again" in caught.value.remedy


async def test_documents_that_do_not_fit_are_named_five_at_most_and_counted() -> None:
    client = FakeClient(lambda id, times: wrong())
    given = [Operation("index", "nodes", str(i), document={}, name=f"strata://s/{i}") for i in range(7)]
    with pytest.raises(InvalidInput, match="7 of the records") as caught:
        await write(client, *given)
    assert [f"strata://s/{i} (HTTP 400 document_parsing_exception)" in caught.value.message for i in range(7)] == [
        *[True] * 5,
        *[False] * 2,
    ]
    assert "and 2 more" in caught.value.message
    assert "quotes" not in str(caught.value)
    assert client.sent["0"] == 1


async def test_a_request_refused_as_a_whole_is_not_blamed_on_the_documents() -> None:
    def answer(id: str, times: int) -> Answer:
        raise api_error(400, "illegal_argument_exception")

    with pytest.raises(StageFailed, match="illegal_argument_exception"):
        await write(FakeClient(answer), *operations(2))


async def test_a_failed_change_is_named() -> None:
    conflict = {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
    with pytest.raises(StageFailed, match=r"7 \(HTTP 409 version_conflict_engine_exception\)"):
        await write(FakeClient(lambda id, times: conflict), Operation("index", "nodes", "7", document={}))


async def test_deleting_what_is_gone_is_a_success_but_not_in_an_index_that_is_gone() -> None:
    await write(FakeClient(lambda id, times: {"status": 404}), Operation("delete", "nodes", "1"))
    gone = {"status": 404, "error": {"type": "index_not_found_exception"}}
    with pytest.raises(StageFailed, match="index_not_found_exception"):
        await write(FakeClient(lambda id, times: gone), Operation("delete", "nodes", "1"))


@pytest.mark.parametrize("whole", [True, False])
async def test_an_index_that_takes_no_writes_is_told_apart(whole: bool) -> None:
    def answer(id: str, times: int) -> Answer:
        if whole:
            raise api_error(403, "cluster_block_exception")
        return BLOCKED

    with pytest.raises(WriteBlocked):
        await write(FakeClient(answer), *operations(2))


async def test_a_document_that_does_not_fit_counts_for_more_than_a_block() -> None:
    client = FakeClient(lambda id, times: wrong() if id == "1" else BLOCKED)
    with pytest.raises(InvalidInput, match="1 of the records: 1 "):
        await write(client, *operations(3))


async def test_requests_side_by_side_never_exceed_in_flight_also_of_two_writes() -> None:
    client = FakeClient()
    client.gate.clear()
    bulk = Bulk(client, CONFIG, FakeSleep())  # type: ignore[arg-type]
    writes = [asyncio.create_task(bulk.write(operations(50, size=1_000))) for _ in range(2)]
    await client.full.wait()
    client.gate.set()
    await asyncio.gather(*writes)
    assert client.most_under_way == CONFIG.in_flight
    assert client.sent.total() == 100


async def test_operations_are_taken_only_when_there_is_room_for_them() -> None:
    """Issue 4: back-pressure."""
    client = FakeClient()
    client.gate.clear()
    taken = 0

    def producer() -> Iterator[Operation]:
        nonlocal taken
        for operation in operations(1_000, size=1_000):
            taken += 1
            yield operation

    writing = asyncio.create_task(Bulk(client, CONFIG, FakeSleep()).write(producer()))  # type: ignore[arg-type]
    await client.full.wait()
    chunk = len(client.requests[0])
    # The first of the next request tells that this one is full.
    assert taken <= CONFIG.in_flight * chunk + 1
    client.gate.set()
    await writing
    assert client.sent.total() == taken == 1_000


class FakeSlowClient(FakeClient):
    """Refuses the first request, and answers the second some time after that."""

    async def bulk(self, *, operations: list[bytes], filter_path: str) -> Answer:
        first = not self.requests
        if first:
            self.gate.clear()
            self.requests.append(operations)
            await self.full.wait()
            self.gate.set()
            return {"errors": True, "items": [{"index": wrong()} for _ in operations]}
        self.full.set()
        await self.gate.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().bulk(operations=operations, filter_path=filter_path)


async def test_after_a_failure_nothing_begins_and_what_is_under_way_ends_first() -> None:
    client = FakeSlowClient()
    with pytest.raises(InvalidInput):
        await write(client, *operations(1_000, size=1_000))
    first, second = client.requests
    assert client.sent.total() == len(second)
    assert len(first) > 1


async def test_an_error_of_the_producer_waits_for_what_is_under_way() -> None:
    client = FakeClient()

    def producer() -> Iterator[Operation]:
        yield from operations(20, size=1_000)
        raise InvalidInput("no record")

    with pytest.raises(InvalidInput, match="no record"):
        await Bulk(client, CONFIG, FakeSleep()).write(producer())  # type: ignore[arg-type]
    assert client.under_way == 0


@given(
    backoff=st.integers(1, 1_000),
    longest=st.integers(1, 5_000),
    attempts=st.integers(1, 12),
)
def test_waits_grow_with_full_jitter_up_to_the_longest(backoff: int, longest: int, attempts: int) -> None:
    config = WriteConfig(attempts=attempts, backoff_ms=backoff, max_backoff_ms=longest)
    sleep = FakeSleep()

    async def run() -> None:
        with pytest.raises(StageFailed):
            await Bulk(FakeClient(lambda id, times: BUSY), config, sleep).write(operations(1))  # type: ignore[arg-type]

    asyncio.run(run())
    assert len(sleep.waits) == attempts - 1
    for attempt, wait in enumerate(sleep.waits):
        assert 0 <= wait <= min(longest, backoff * 2**attempt) / 1000
