"""The client of the HTTP interface, against a stand-in transport."""

from collections.abc import Callable

import httpx
import msgspec
import pytest

from contracts.errors import ConfigError, StrataError, TopKOutOfRange, Unauthenticated
from contracts.hits import RetrievedBlock
from contracts.responses import ErrorBody, ReadMemoryResponse
from contracts.trace import ReadTrace
from deployments.cli.client import Client

BLOCK = RetrievedBlock(
    uri="strata://shared/x",
    level_hit="L1",
    score=0.0,
    category="c",
    owner_space="shared",
    abstract=None,
    overview="text",
    content_excerpt=None,
    relations=(),
    has_overview=True,
    has_content=False,
    read_recommendation="none",
    match_reason="",
)


def client(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client("http://test", "strata_1_2", httpx.MockTransport(answer))


def refuses(status: int, body: object) -> Client:
    return client(lambda _: httpx.Response(status, content=msgspec.json.encode(body)))


def test_a_request_carries_the_key_and_the_body() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        body = ReadMemoryResponse("r", BLOCK, ReadTrace())
        return httpx.Response(200, content=msgspec.json.encode(body))

    with client(answer) as http:
        assert http.read(uri="strata://shared/x", level="L1").block == BLOCK
    assert seen[0].url.path == "/v1/read_memory"
    assert seen[0].headers["authorization"] == "Bearer strata_1_2"
    assert msgspec.json.decode(seen[0].content) == {"uri": "strata://shared/x", "level": "L1"}


def test_an_error_answer_is_raised_as_what_it_is() -> None:
    body = ErrorBody("r", "RET-4002", "top_k is out of range.", "top_k", "Send 1..50.")
    with refuses(400, body) as http, pytest.raises(TopKOutOfRange) as error:
        http.search(query="x")
    assert error.value.field == "top_k"
    assert error.value.remedy == "Send 1..50."


def test_a_refused_key_comes_with_the_command_that_makes_one() -> None:
    body = ErrorBody("r", "RET-4011", "The API key is not valid.")
    with refuses(401, body) as http, pytest.raises(Unauthenticated) as error:
        http.search(query="x")
    assert "strata keys create" in error.value.remedy


def test_an_answer_of_another_program_is_an_error() -> None:
    with refuses(502, "bad gateway") as http, pytest.raises(StrataError, match="502"):
        http.search(query="x")
    with refuses(200, "hello") as http, pytest.raises(StrataError, match="no Strata"):
        http.search(query="x")


def test_a_service_that_is_down_comes_with_the_command_that_starts_it() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with client(answer) as http, pytest.raises(ConfigError) as error:
        http.search(query="x")
    assert "http://test" in error.value.message
    assert "strata up" in error.value.remedy


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(ConfigError, match="key"):
        Client("http://test", "schlüssel")
