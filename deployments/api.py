"""The HTTP API: authenticates, admits, reads the body, answers. As little as that, because every request pays it.

The routes are plain Starlette routes of a FastAPI app: a body is validated once, straight from its bytes, and an answer
is encoded once, straight from its structs.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from contracts.context import RequestContext
from contracts.errors import BodyTimeout, BodyTooLarge, Overloaded
from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ReadBatchResponse, ReadMemoryResponse, SearchMemoryResponse
from deployments.http_errors import REQUEST_ID, as_strata_error, error_response, json_response
from deployments.identity.authenticator import Authenticator
from deployments.identity.caller import Caller
from deployments.limits.admission import Admission
from deployments.limits.config import AdmissionConfig
from deployments.logs import RequestLog, take_notes
from deployments.metrics import RequestMetrics
from deployments.openapi import Health, Readiness, Section, document
from deployments.service import Service
from deployments.settings import ServerSettings

Body = TypeVar("Body", bound=BaseModel)
Answer = TypeVar("Answer")
Given = TypeVar("Given")
Endpoint = Callable[[Request], Awaitable[Response]]


class Extension(Protocol):
    """Further routes of the API."""

    @property
    def section(self) -> Section:
        """Their part of the OpenAPI document."""
        ...

    def add_to(self, app: FastAPI, api: "Api", /) -> None:
        """Add them."""
        ...


def _always() -> None:
    """Room for any request."""


class Api:
    """The handlers of the HTTP API.

    Args:
        service: Answers.
        authenticator: Who asks.
        limited: Put around a request of a caller; raises ``RateLimited``.
        ready: Looks at the graph for ``/readyz``.
        settings: Limits.
        metrics: Counts requests.
        admission: Places for searches; reads cost little, and have only those of the settings.
    """

    def __init__(
        self,
        service: Service,
        authenticator: Authenticator,
        limited: Callable[[Caller], AbstractAsyncContextManager[None]],
        ready: Callable[[], Awaitable[Readiness]],
        settings: ServerSettings,
        metrics: RequestMetrics,
        admission: Admission | None = None,
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self.limited = limited
        self._ready = ready
        self._settings = settings
        self._metrics = metrics
        self._admission = admission or Admission(AdmissionConfig(target_ms=None), settings.max_concurrent)
        self._log = RequestLog()
        self._ongoing = 0

    def app(self, *extensions: Extension) -> FastAPI:
        """The ASGI app.

        Args:
            extensions: Further routes.
        """
        app = FastAPI(title="Strata", redoc_url=None)
        app.openapi = partial(document, *(each.section for each in extensions))  # type: ignore[method-assign]
        app.add_exception_handler(HTTPException, self._no_route)
        for name, kind, answer, room in (
            ("search_memory", SearchMemoryRequest, self._search, self._room_to_search),
            ("read_memory", ReadMemoryRequest, self._read, _always),
            ("read_batch", ReadBatchRequest, self._read_batch, _always),
        ):
            app.add_route(f"/v1/{name}", self._endpoint(name, kind, answer, room), methods=["POST"])
        app.add_route("/healthz", self._healthz, methods=["GET"])
        app.add_route("/readyz", self._readyz, methods=["GET"])
        for each in extensions:
            each.add_to(app, self)
        return app

    def endpoint(
        self,
        name: str,
        read: Callable[[Request], Awaitable[Given]],
        answer: Callable[[RequestContext, Given], Awaitable[Response]],
        room: Callable[[], None] = _always,
    ) -> Endpoint:
        """A handler of a caller's requests: authenticated, limited and admitted, and its errors answered.

        Args:
            name: For the log.
            read: Understands the request; until it has, nobody logs it but this.
            answer: Answers, and logs what it does.
            room: Raises for a request that is refused whoever sends it, so that refusing costs next to nothing.
        """

        async def endpoint(request: Request) -> Response:
            request_id = request_id_of(request)
            understood = False
            try:
                room()
                header = request.headers.get("authorization", "")
                caller = await self._authenticator.authenticate(header, request_id)
                async with self.limited(caller):
                    with self._admitted():
                        given = await read(request)
                        understood = True
                        return await answer(caller.context, given)
            except ClientDisconnect:
                self._log.refused(name, request_id, "abandoned")
                return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)  # Nobody is left to read it.
            except Exception as error:
                if not understood:
                    self._log.refused(name, request_id, as_strata_error(error).code)
                return error_response(error, request_id)
            except asyncio.CancelledError:
                self._log.refused(name, request_id, "abandoned")
                raise

        return endpoint

    def admitted_endpoint(self, name: str, answer: Callable[[Request, str], Awaitable[Response]]) -> Endpoint:
        """A handler of requests that say in their body who sends them: admitted, and its errors answered.

        Args:
            name: For the log.
            answer: Gets the request and its id; authenticates, holds to limits (:attr:`limited`), answers, and logs.
        """

        async def endpoint(request: Request) -> Response:
            request_id = request_id_of(request)
            with ExitStack() as place:
                try:
                    place.enter_context(self._admitted())
                except Overloaded as error:
                    self._log.refused(name, request_id, error.code)
                    return error_response(error, request_id)
                try:
                    return await answer(request, request_id)
                except ClientDisconnect:
                    return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)  # Nobody is left to read it.
                except Exception as error:
                    return error_response(error, request_id)

        return endpoint

    def _endpoint(
        self,
        name: str,
        kind: type[Body],
        answer: Callable[[RequestContext, Any], Awaitable[object]],
        room: Callable[[], None],
    ) -> Endpoint:
        async def read(request: Request) -> Body:
            return kind.model_validate_json(await self.body(request))

        async def respond(ctx: RequestContext, body: Body) -> Response:
            return json_response(await answer(ctx, body))

        return self.endpoint(name, read, respond, room)

    async def _search(self, ctx: RequestContext, body: SearchMemoryRequest) -> SearchMemoryResponse:
        began = self._enter_search(ctx, body)
        started, notes, whole = time.perf_counter(), take_notes(), False
        try:
            answer = await self._service.search(ctx, body)
            whole = not answer.degraded
        except Exception as error:
            code = as_strata_error(error).code
            self._metrics.search(code, time.perf_counter() - started)
            self._log.search_failed(ctx, body, code)
            raise
        finally:
            self._admission.leave(began, whole=whole)
        self._metrics.search("degraded" if answer.degraded else "ok", time.perf_counter() - started)
        self._metrics.filtered(notes.threshold_filtered)
        for reason, count in notes.drops.items():
            self._metrics.dropped(reason, count)
        self._log.searched(ctx, body, answer, notes)
        return answer

    def _room_to_search(self) -> None:
        """Under overload most requests end here, and those inside keep the time that refusing them would take."""
        try:
            self._admission.check()
        except Overloaded:
            self._metrics.overloaded("searches")
            raise

    def _enter_search(self, ctx: RequestContext, body: SearchMemoryRequest) -> float:
        """Take a place for a search whose body is here: who sends one slowly holds no place that others could use."""
        try:
            self._room_to_search()
        except Overloaded as error:
            self._log.search_failed(ctx, body, error.code)
            raise
        return self._admission.enter()

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
            code, seconds = as_strata_error(error).code, time.perf_counter() - started
            self._metrics.read(code, seconds)
            self._log.read(ctx, body, seconds=seconds, code=code)
            raise
        seconds = time.perf_counter() - started
        self._metrics.read("ok", seconds)
        self._metrics.texts(body.level, texts(answer))
        self._log.read(ctx, body, answered=texts(answer), seconds=seconds)
        return answer

    async def _healthz(self, request: Request) -> Response:
        return json_response(Health())

    async def _readyz(self, request: Request) -> Response:
        readiness = await self._ready()
        return json_response(readiness, 200 if readiness.ready else 503)

    async def _no_route(self, request: Request, error: Any) -> Response:
        """An unknown path or method; which, a caller chose, so that it is not for the log."""
        request_id = request_id_of(request)
        self._log.refused("no_route", request_id, f"HTTP-{error.status_code}")
        return error_response(error, request_id)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._ongoing >= self._settings.max_concurrent:
            self._metrics.overloaded("requests")
            raise Overloaded("The service has no room for this request.", remedy="Retry in a moment.")
        self._ongoing += 1
        try:
            with self._metrics.under_way():
                yield
        finally:
            self._ongoing -= 1

    async def body(self, request: Request, limit: int | None = None) -> bytes:
        """The body of a request, bounded in size and time: a client that trickles must not keep its place for ever.

        Args:
            request: Whose body.
            limit: Bytes, where it is not that of the settings.

        Raises:
            BodyTooLarge, BodyTimeout
        """
        limit, patience = limit or self._settings.max_body_bytes, self._settings.body_timeout_ms
        parts, size = [], 0
        try:
            async with asyncio.timeout(patience / 1000):
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        raise BodyTooLarge(f"The body is longer than {limit} bytes.", remedy="Send a shorter one.")
                    parts.append(part)
        except TimeoutError:
            raise BodyTimeout(f"The body did not come within {patience} ms.", remedy="Send it at once.") from None
        return b"".join(parts)


def request_id_of(request: Request) -> str:
    """The caller's ``x-request-id`` where it is fit for logs, else a new one.

    Serve's proxy makes one where there is none, and sends it back with the answer.
    """
    given = request.headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
