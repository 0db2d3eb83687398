"""The HTTP API: authenticates, admits, reads the body, answers. As little as that, because every request pays it.

The routes are plain Starlette routes of a FastAPI app: a body is validated once, straight from its bytes, and an answer
is encoded once, straight from its structs.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from contracts.context import RequestContext
from contracts.errors import BodyTooLarge, Overloaded
from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ReadBatchResponse, ReadMemoryResponse, SearchMemoryResponse
from deployments.http_errors import REQUEST_ID, as_strata_error, error_response, json_response
from deployments.identity.authenticator import Authenticator
from deployments.identity.caller import Caller
from deployments.logs import RequestLog, take_notes
from deployments.metrics import RequestMetrics
from deployments.openapi import Health, Readiness, document
from deployments.service import Service
from deployments.settings import ServerSettings

Body = TypeVar("Body", bound=BaseModel)
Answer = TypeVar("Answer")


class Api:
    """The handlers of the HTTP API.

    Args:
        service: Answers.
        authenticator: Who asks.
        limited: Put around a request of a caller; raises ``RateLimited``.
        ready: Looks at the graph for ``/readyz``.
        settings: Limits.
        metrics: Counts requests.
    """

    def __init__(
        self,
        service: Service,
        authenticator: Authenticator,
        limited: Callable[[Caller], AbstractAsyncContextManager[None]],
        ready: Callable[[], Awaitable[Readiness]],
        settings: ServerSettings,
        metrics: RequestMetrics,
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._limited = limited
        self._ready = ready
        self._settings = settings
        self._metrics = metrics
        self._log = RequestLog()
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
            request_id, name = request_id_of(request), request.url.path.rsplit("/", 1)[-1]
            understood = False
            try:
                header = request.headers.get("authorization", "")
                caller = await self._authenticator.authenticate(header, request_id)
                async with self._limited(caller):
                    with self._admitted():
                        body = kind.model_validate_json(await self._body(request))
                        understood = True
                        return json_response(await answer(caller.context, body))
            except Exception as error:
                if not understood:
                    self._log.refused(name, request_id, as_strata_error(error).code)
                return error_response(error, request_id)
            except asyncio.CancelledError:
                self._log.refused(name, request_id, "abandoned")
                raise

        return endpoint

    async def _search(self, ctx: RequestContext, body: SearchMemoryRequest) -> SearchMemoryResponse:
        started, notes = time.perf_counter(), take_notes()
        try:
            answer = await self._service.search(ctx, body)
        except Exception as error:
            code = as_strata_error(error).code
            self._metrics.search(code, time.perf_counter() - started)
            self._log.search_failed(ctx, body, code)
            raise
        self._metrics.search("degraded" if answer.degraded else "ok", time.perf_counter() - started)
        self._metrics.filtered(notes.threshold_filtered)
        for reason, count in notes.drops.items():
            self._metrics.dropped(reason, count)
        self._log.searched(ctx, body, answer, notes)
        return answer

    async def _read(self, ctx: RequestContext, body: ReadMemoryRequest) -> ReadMemoryResponse:
        return await self._logged(ctx, body, self._service.read(ctx, body), lambda answer: 1)

    async def _read_batch(self, ctx: RequestContext, body: ReadBatchRequest) -> ReadBatchResponse:
        return await self._logged(ctx, body, self._service.read_batch(ctx, body), lambda answer: len(answer.blocks))

    async def _logged(
        self,
        ctx: RequestContext,
        body: ReadMemoryRequest | ReadBatchRequest,
        reading: Awaitable[Answer],
        texts: Callable[[Answer], int],
    ) -> Answer:
        """What a read answers, counted and logged."""
        started = time.perf_counter()
        try:
            answer = await reading
        except Exception as error:
            code = as_strata_error(error).code
            self._log.read(ctx, body, seconds=time.perf_counter() - started, code=code)
            raise
        self._metrics.read(body.level, texts(answer))
        self._log.read(ctx, body, answered=texts(answer), seconds=time.perf_counter() - started)
        return answer

    async def _healthz(self, request: Request) -> Response:
        return json_response(Health())

    async def _readyz(self, request: Request) -> Response:
        readiness = await self._ready()
        return json_response(readiness, 200 if readiness.ready else 503)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._ongoing >= self._settings.max_concurrent:
            raise Overloaded("The service has no room for this request.", remedy="Retry in a moment.")
        self._ongoing += 1
        try:
            with self._metrics.under_way():
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
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


async def _http_error(request: Request, error: Exception) -> Response:
    return error_response(error, request_id_of(request))
