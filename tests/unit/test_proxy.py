"""What a caller gets when Serve's proxy answers in place of an ingress."""

import json
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.responses import ErrorBody
from deployments.proxy import Edge, middlewares


async def ask(app: ASGIApp, path: str = "/v1/search_memory", request_id: str = "r-1") -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=Edge(app)), base_url="http://test") as client:
        return await client.get(path, headers={"x-request-id": request_id} if request_id else {})


class FakeProxy:
    """A proxy that fails while it answers, before or after the start."""

    def __init__(self, *messages: dict[str, Any], error: Exception | None = None) -> None:
        self.messages, self.error = messages, error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for message in self.messages:
            await send(message)
        if self.error:
            raise self.error


@pytest.mark.parametrize(
    ("app", "status", "code"),
    [
        (PlainTextResponse("Request dropped", 429), 429, "RET-4291"),
        (PlainTextResponse("No replicas", 503), 503, "RET-5004"),
        (PlainTextResponse("Request 7 timed out after 12s.", 408), 504, "RET-5041"),
        (PlainTextResponse("/srv/app.py, line 7", 500), 503, "RET-5004"),
        (PlainTextResponse("Path '/secret' not found.", 404), 404, "HTTP-404"),
        (FakeProxy(), 503, "RET-5004"),
        (FakeProxy(error=RuntimeError("/srv/app.py")), 503, "RET-5004"),
    ],
)
async def test_an_error_of_the_proxy_has_our_shape_and_none_of_its_words(app: ASGIApp, status: int, code: str) -> None:
    response = await ask(app)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.json().keys() == set(ErrorBody.__struct_fields__)
    assert response.headers["x-request-id"] == response.json()["request_id"] == "r-1"
    assert response.headers.get("retry-after") == (None if status == 404 else "1")
    assert not any(word in response.text for word in ("dropped", "replicas", "timed out", "srv", "secret"))


@pytest.mark.parametrize(
    "answer", [JSONResponse({"hits": []}), JSONResponse({"code": "RET-4001"}, 400), PlainTextResponse("success")]
)
async def test_any_other_answer_passes_as_it_is(answer: Response) -> None:
    response = await ask(answer)
    assert (response.status_code, response.content) == (answer.status_code, bytes(answer.body))


async def test_what_serve_says_of_itself_passes() -> None:
    assert (await ask(PlainTextResponse("draining", 503), "/-/healthz")).text == "draining"


async def test_an_answer_that_breaks_off_stays_broken() -> None:
    start = {"type": "http.response.start", "status": 200, "headers": []}
    with pytest.raises(RuntimeError):
        await ask(FakeProxy(start, error=RuntimeError("gone")))


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, "a\tb"])
async def test_an_id_unfit_for_logs_goes_no_further(given: str) -> None:
    seen: list[str | None] = []

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]).get(b"x-request-id"))
        await JSONResponse({})(scope, receive, send)

    await ask(proxy, request_id=given)
    await ask(proxy, request_id="trace-42")
    assert seen == [None, b"trace-42"]


async def test_of_two_ids_none_is_taken() -> None:
    assert await passed(("x-request-id", "a"), ("x-request-id", "b")) == {}


@pytest.mark.parametrize(
    "name",
    [
        "x-request-timeout-seconds",
        "X-Request-Disconnect-Disabled",
        "serve-multiplexed-model-id",
        "serve_multiplexed_model_id",
        "x-session-id",
    ],
)
async def test_no_header_steers_serve(name: str) -> None:
    """Nobody gets more time than the settings give, or work that goes on when it hung up."""
    assert await passed((name, "1"), ("x-mine", "2")) == {b"x-mine": b"2"}


async def passed(*headers: tuple[str, str]) -> dict[bytes, bytes]:
    """What of a request's headers reaches the proxy."""
    seen: dict[bytes, bytes] = {}

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        seen.update(
            {name: value for name, value in scope["headers"] if name in {n.lower().encode() for n, _ in headers}}
        )
        await JSONResponse({})(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=Edge(proxy)), base_url="http://test") as client:
        await client.get("/", headers=list(headers))
    return seen


def test_serve_finds_it_by_its_name() -> None:
    (middleware,) = middlewares()
    assert middleware.cls is Edge
    assert json.dumps(middleware.kwargs) == "{}"
