"""The HTTP upstream against a real server: what is sent, how its errors are passed on, and what is not trusted."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.deadline import Deadline
from contracts.errors import StrataError, UpstreamFailed, UpstreamRefused, UpstreamTimeout
from gateway.config import HttpUpstreamConfig
from gateway.http_upstream import HttpUpstream
from gateway.upstream import Owner, UpstreamAnswer, UpstreamQuery, User
from tests.support.memory_service import MemoryService, episode, memory_service

ALICE = User("alice", "acme", "memory.alice")


def query(**changes: Any) -> UpstreamQuery:
    fields: dict[str, Any] = {
        "owner": Owner("user_id", "alice"),
        "query": "tea",
        "method": "hybrid",
        "top_k": 8,
        "radius": None,
        "include_profile": True,
        "enable_llm_rerank": True,
        "app_id": "default",
        "project_id": "default",
    }
    return UpstreamQuery(**fields | changes)


@pytest.fixture
async def service() -> AsyncIterator[MemoryService]:
    async with memory_service() as stub:
        yield stub


@pytest.fixture
async def upstream(service: MemoryService) -> AsyncIterator[HttpUpstream]:
    client = HttpUpstream(HttpUpstreamConfig(base_url=service.url, max_answer_bytes=4096), "up-key")
    yield client
    await client.close()


async def search(upstream: HttpUpstream, seconds: float = 10, **changes: Any) -> UpstreamAnswer:
    return await upstream.search(ALICE, Deadline.after(seconds), query(**changes))


async def failure(upstream: HttpUpstream, seconds: float = 10) -> StrataError:
    with pytest.raises(StrataError) as error:
        await search(upstream, seconds)
    return error.value


async def test_what_is_not_given_is_not_sent(upstream: HttpUpstream, service: MemoryService) -> None:
    """G3."""
    await search(upstream)
    assert service.requests == [
        {
            "user_id": "alice",
            "query": "tea",
            "method": "hybrid",
            "top_k": 8,
            "include_profile": True,
            "enable_llm_rerank": True,
            "app_id": "default",
            "project_id": "default",
        }
    ]
    assert service.headers[0]["authorization"] == "Bearer up-key"


async def test_a_radius_of_nought_is_sent(upstream: HttpUpstream, service: MemoryService) -> None:
    await search(upstream, radius=0.0, filters={"a": 1}, owner=Owner("agent_id", "planner"))
    (sent,) = service.requests
    assert (sent["radius"], sent["filters"], sent["agent_id"]) == (0.0, {"a": 1}, "planner")
    assert "user_id" not in sent


async def test_all_arrays_come_back(upstream: HttpUpstream, service: MemoryService) -> None:
    service.data = {"episodes": [episode("e")], "agent_skills": [{"id": "s", "name": "n"}]}
    answer = await search(upstream)
    assert answer == UpstreamAnswer(episodes=(episode("e"),), agent_skills=({"id": "s", "name": "n"},))


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (422, {"error": {"code": "X", "message": "unsupported filter field: 'colour'"}}, "unsupported filter field"),
        (422, {"detail": [{"loc": ["body", "filters"], "msg": "bad", "input": "secret"}]}, "body.filters: bad"),
        (400, {"detail": "no such owner"}, "no such owner"),
        (404, {"oops": 1}, "404"),
        (429, {"message": "slow down"}, "slow down"),
    ],
)
async def test_its_refusals_reach_the_caller_with_their_status_and_words(
    upstream: HttpUpstream, service: MemoryService, status: int, body: Any, words: str
) -> None:
    """G8."""
    service.status, service.body = status, json.dumps(body).encode()
    error = await failure(upstream)
    assert isinstance(error, UpstreamRefused)
    assert (error.http_status, error.retryable) == (status, False)
    assert words in error.message
    assert "secret" not in error.message
    assert bool(error.retry_after) == (status == 429)


@pytest.mark.parametrize(
    ("status", "passed_on"), [(500, 500), (503, 503), (504, 504), (401, 502), (403, 502), (302, 502)]
)
async def test_its_failures_reach_the_caller_and_refused_credentials_of_ours_as_502(
    upstream: HttpUpstream, service: MemoryService, status: int, passed_on: int
) -> None:
    """G8."""
    service.status, service.body = status, b'{"detail": "trace of its insides"}'
    error = await failure(upstream)
    assert isinstance(error, UpstreamFailed)
    assert (error.http_status, error.retryable) == (passed_on, True)
    assert "insides" not in error.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"data": null}',
        b'{"data": {"episodes": {}}}',
        b'{"data": {"episodes": [1]}}',
        b'{"data": {"episodes": [{"id": 7}]}}',
        b'{"data": {"episodes": [{"score": 1}]}}',
        b'{"data": {"episodes": []}, "x": "' + b"y" * 5000 + b'"}',
    ],
)
async def test_an_answer_that_is_none_or_too_long_is_502(
    upstream: HttpUpstream, service: MemoryService, body: bytes
) -> None:
    service.body = body
    error = await failure(upstream)
    assert (type(error), error.http_status) == (UpstreamFailed, 502)


async def test_one_that_hangs_is_504_at_the_deadline(upstream: HttpUpstream, service: MemoryService) -> None:
    service.gate = asyncio.Event()
    error = await failure(upstream, seconds=0.05)
    assert (type(error), error.http_status) == (UpstreamTimeout, 504)


async def test_one_that_hangs_is_504_by_its_own_time_out_too(service: MemoryService) -> None:
    service.gate = asyncio.Event()
    upstream = HttpUpstream(HttpUpstreamConfig(base_url=service.url, read_timeout_ms=20), None)
    assert isinstance(await failure(upstream), UpstreamTimeout)
    await upstream.close()


async def test_one_that_is_not_there_is_502() -> None:
    upstream = HttpUpstream(HttpUpstreamConfig(base_url="http://127.0.0.1:9"), None)
    error = await failure(upstream)
    assert (type(error), error.http_status) == (UpstreamFailed, 502)
    await upstream.close()


async def test_connections_are_kept(upstream: HttpUpstream, service: MemoryService) -> None:
    ports = set()
    for _ in range(3):
        await search(upstream)
        pool: Any = upstream._client._client._transport
        ports |= {id(connection) for connection in pool._pool.connections}
    assert len(ports) == 1
    assert len(service.requests) == 3
