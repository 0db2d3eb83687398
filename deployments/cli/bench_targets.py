"""What ``strata bench`` puts load on: the service over HTTP, or the stages in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from contracts.errors import StrataError
from contracts.requests import SearchMemoryRequest
from contracts.responses import ErrorBody
from contracts.stages import Observer
from contracts.trace import Degradation, Trace
from deployments.cli.client import Client
from deployments.identity.opening import context_of
from deployments.local import open_local
from deployments.settings import Settings
from evaluation.load.generator import OK, UNREACHABLE, Ask, Reply

_SEARCH = "v1/search_memory"
_ANSWERED = 200


def _seconds(given: str) -> float | None:
    """Of a header ``Retry-After`` in seconds; ``None`` of anything else."""
    return float(given) if given.isascii() and given.isdigit() else None


class _Answer(msgspec.Struct):
    """What of an answer a load test looks at."""

    trace: Trace
    degraded: tuple[Degradation, ...] = ()


@asynccontextmanager
async def over_http(url: str, key: str, connections: int, top_k: int, first: str) -> AsyncIterator[Ask]:
    """The service at a URL.

    aiohttp takes a quarter of httpx' time for a request; on a machine of two cores the client's share would else weigh
    on the service.

    Args:
        url: Where it answers.
        key: The API key.
        connections: Kept open, at most.
        top_k: Hits wanted.
        first: A query that is asked once, before any load.

    Raises:
        StrataError: It does not answer that query.
    """
    with Client(url, key) as client:
        client.search(query=first, top_k=top_k)
    decoder, errors = msgspec.json.Decoder(_Answer), msgspec.json.Decoder(ErrorBody)
    encoder = msgspec.json.Encoder()
    async with aiohttp.ClientSession(
        f"{url.rstrip('/')}/",
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:

        async def ask(query: str) -> Reply:
            try:
                async with session.post(_SEARCH, data=encoder.encode({"query": query, "top_k": top_k})) as response:
                    body = await response.read()
            except aiohttp.ClientError:
                return Reply(UNREACHABLE)
            try:
                if response.status == _ANSWERED:
                    answer = decoder.decode(body)
                    return Reply(OK, answer.trace, answer.degraded)
                code = errors.decode(body).code
            except msgspec.DecodeError:
                code = "not understood"
            return Reply(f"{response.status} {code}", retry_after=_seconds(response.headers.get("Retry-After", "")))

        yield ask


@asynccontextmanager
async def in_process(settings: Settings, key: str, top_k: int, observer: Observer, first: str) -> AsyncIterator[Ask]:
    """The stages in this process, without Ray and HTTP; arguments as for :func:`over_http`.

    Args:
        settings: Of the stages and the index.
        key: The API key.
        top_k: Hits wanted.
        observer: Told what the chain does.
        first: A query that is asked once, before any load.

    Raises:
        StrataError: The key is none, a model or the index can't be opened, or the query is not answered.
    """
    ctx = await context_of(settings, key, "bench")
    service = await open_local(settings, observer)
    try:

        async def ask(query: str) -> Reply:
            try:
                answer = await service.search(ctx, SearchMemoryRequest(query=query, top_k=top_k))
            except StrataError as error:
                return Reply(error.code)
            return Reply(OK, answer.trace, answer.degraded)

        await service.search(ctx, SearchMemoryRequest(query=first, top_k=top_k))
        yield ask
    finally:
        await service.close()
