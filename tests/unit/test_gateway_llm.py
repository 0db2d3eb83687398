"""The client of the language model, against a real server that speaks its protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from contracts.deadline import Deadline
from contracts.errors import StageError, StageFailed, StageTimeout
from gateway.config import LanguageModelConfig
from gateway.llm import LanguageModel
from tests.support.http_server import serving


class Endpoint:
    """A stub of the endpoint."""

    def __init__(self) -> None:
        self.content: Any = '{"enough": true}'
        self.status = 200
        self.gate: asyncio.Event | None = None
        self.asked: list[tuple[str, Any]] = []

    async def complete(self, request: Request) -> Response:
        self.asked.append((request.headers.get("authorization", ""), await request.json()))
        if self.gate:
            await self.gate.wait()
        body = {"choices": [{"message": {"role": "assistant", "content": self.content}}]}
        return Response(json.dumps(body), self.status, media_type="application/json")


@pytest.fixture
async def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
async def model(endpoint: Endpoint) -> AsyncIterator[LanguageModel]:
    app = Starlette(routes=[Route("/v1/chat/completions", endpoint.complete, methods=["POST"])])
    async with serving(app) as url:
        client = LanguageModel(LanguageModelConfig(base_url=f"{url}/v1/", model="m"), "llm-key")
        yield client
        if endpoint.gate:
            endpoint.gate.set()
        await client.close()


async def ask(model: LanguageModel, seconds: float = 10) -> dict[str, Any]:
    return await model.ask("Judge.", {"query": "茶"}, Deadline.after(seconds))


async def test_a_task_is_asked_as_a_chat_and_answered_with_an_object(model: LanguageModel, endpoint: Endpoint) -> None:
    assert await ask(model) == {"enough": True}
    ((authorization, body),) = endpoint.asked
    assert authorization == "Bearer llm-key"
    assert (body["model"], body["temperature"], body["response_format"]) == ("m", 0, {"type": "json_object"})
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert json.loads(body["messages"][1]["content"]) == {"query": "茶"}


async def test_an_object_within_a_block_of_markdown_is_found(model: LanguageModel, endpoint: Endpoint) -> None:
    endpoint.content = 'Here:\n```json\n{"scores": [1]}\n```'
    assert await ask(model) == {"scores": [1]}


@pytest.mark.parametrize("content", ["", "no", "[1]", "{", "}{", None, 7, '{"a": }'])
async def test_anything_else_is_a_failure(model: LanguageModel, endpoint: Endpoint, content: Any) -> None:
    endpoint.content = content
    with pytest.raises(StageFailed):
        await ask(model)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 302])
async def test_an_error_of_the_endpoint_is_a_failure(model: LanguageModel, endpoint: Endpoint, status: int) -> None:
    endpoint.status = status
    with pytest.raises(StageFailed) as error:
        await ask(model)
    assert str(status) in error.value.message


async def test_it_is_not_waited_for_beyond_the_deadline(model: LanguageModel, endpoint: Endpoint) -> None:
    endpoint.gate = asyncio.Event()
    with pytest.raises(StageTimeout):
        await ask(model, seconds=0.05)


async def test_one_that_is_not_there_is_a_failure() -> None:
    model = LanguageModel(LanguageModelConfig(base_url="http://127.0.0.1:9", model="m"), None)
    with pytest.raises(StageError):
        await ask(model)
    await model.close()
