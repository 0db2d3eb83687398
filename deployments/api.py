"""The HTTP API: authenticates, admits, reads the body, answers. As little as that, because every request pays it.

The routes are plain Starlette routes of a FastAPI app: a body is validated once, straight from its bytes, and an answer
is encoded once, straight from its structs.
"""

import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from contracts.context import RequestContext
from contracts.errors import BodyTooLarge, Overloaded, Unauthenticated
from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ReadBatchResponse, ReadMemoryResponse, SearchMemoryResponse
from deployments.http_errors import as_strata_error, error_response, json_response
from deployments.keys import KeyStore
from deployments.logs import SearchLog, take_notes
from deployments.metrics import RequestMetrics
from deployments.openapi import Health, Readiness, document
from deployments.service import Service
from deployments.settings import ServerSettings

Body = TypeVar("Body", bound=BaseModel)

_REQUEST_ID = re.compile(r"[!-~]{1,128}")


class Api:
    """The handlers of the HTTP API.

    Args:
        service: Answers.
        keys: Who may ask.
        ready: Looks at the graph for ``/readyz``.
        settings: Limits.
        metrics: Counts requests.
    """

    def __init__(
        self,
        service: Service,
        keys: KeyStore,
        ready: Callable[[], Awaitable[Readiness]],
        settings: ServerSettings,
        metrics: RequestMetrics,
    ) -> None:
        self._service = service
        self._keys = keys
        self._ready = ready
        self._settings = settings
        self._metrics = metrics
        self._log = SearchLog()
        self._ongoing = 0

    def app(self) -> FastAPI:
        """The ASGI app."""
        app = FastAPI(title="Strata", redoc_url=None)
        app.openapi = document  # type: ignore[method-assign]
        app.add_exception_handler(HTTPException, _http_error)
        for path, endpoint in (
            ("/v1/search_memory", self._endpoint(SearchMemoryRequest, self._search)),
            ("/v1/read_memory", self._endpoint(ReadMemoryRequest, self._read)),
            ("/v1/read_batch", self._endpoint(ReadBatchRequest, self._read_batch)),
        ):
            app.add_route(path, endpoint, methods=["POST"])
        app.add_route("/healthz", self._healthz, methods=["GET"])
        app.add_route("/readyz", self._readyz, methods=["GET"])
        return app

    def _endpoint(
        self, kind: type[Body], answer: Callable[[RequestContext, Body], Awaitable[object]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            request_id = request_id_of(request)
            try:
                ctx = self._authenticate(request, request_id)
                with self._admitted():
                    body = kind.model_validate_json(await self._body(request))
                    return json_response(await answer(ctx, body))
            except Exception as error:
                return error_response(error, request_id)

        return endpoint

    async def _search(self, ctx: RequestContext, body: SearchMemoryRequest) -> SearchMemoryResponse:
        started, notes = time.perf_counter(), take_notes()
        try:
            answer = await self._service.search(ctx, body)
        except Exception as error:
            code = as_strata_error(error).code
            self._metrics.search(code, time.perf_counter() - started)
            self._log.failed(ctx, body, code)
            raise
        self._metrics.search("degraded" if answer.degraded else "ok", time.perf_counter() - started)
        self._metrics.filtered(notes.threshold_filtered)
        for reason, count in notes.drops.items():
            self._metrics.dropped(reason, count)
        self._log.answered(ctx, body, answer, notes)
        return answer

    async def _read(self, ctx: RequestContext, body: ReadMemoryRequest) -> ReadMemoryResponse:
        answer = await self._service.read(ctx, body)
        self._metrics.read(body.level, 1)
        return answer

    async def _read_batch(self, ctx: RequestContext, body: ReadBatchRequest) -> ReadBatchResponse:
        answer = await self._service.read_batch(ctx, body)
        self._metrics.read(body.level, len(answer.blocks))
        return answer

    async def _healthz(self, request: Request) -> Response:
        return json_response(Health())

    async def _readyz(self, request: Request) -> Response:
        readiness = await self._ready()
        return json_response(readiness, 200 if readiness.ready else 503)

    def _authenticate(self, request: Request, request_id: str) -> RequestContext:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("There is no API key.", remedy="Send the header Authorization: Bearer <key>.")
        return self._keys.authenticate(token.strip()).context(request_id)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._ongoing >= self._settings.max_concurrent:
            raise Overloaded("The service has no room for this request.", remedy="Retry in a moment.")
        self._ongoing += 1
        try:
            yield
        finally:
            self._ongoing -= 1

    async def _body(self, request: Request) -> bytes:
        limit = self._settings.max_body_bytes
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise BodyTooLarge(f"The body is longer than {limit} bytes.", remedy="Send a shorter one.")
            parts.append(part)
        return b"".join(parts)


def request_id_of(request: Request) -> str:
    """The caller's ``x-request-id`` where it is fit for logs, else a new one.

    Serve's proxy makes one where there is none, and sends it back with the answer.
    """
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


async def _http_error(request: Request, error: Exception) -> Response:
    return error_response(error, request_id_of(request))
