"""The HTTP routes of corpora, under ``/v1/corpora``."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from contracts.context import RequestContext
from contracts.errors import InvalidBody, Overloaded
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import Receipt
from deployments.api import Api, Endpoint, request_id_of
from deployments.corpora.messages import (
    CorporaResponse,
    DeleteSourcesRequest,
    IngestBatchRequest,
    RetrieveBatchRequest,
)
from deployments.corpora.openapi import section
from deployments.corpora.service import Corpora
from deployments.corpora.settings import CorporaHttp
from deployments.http_errors import error_response, json_response
from deployments.logs import RequestLog
from deployments.openapi import Section

Body = TypeVar("Body", bound=BaseModel)

_ROOT = "/v1/corpora"
_WAIT = "wait_ms"
_MAX_DIGITS = 9
# From this size on a body is decoded in a thread.
_LARGE = 64 * 1024
_OBJECT = TypeAdapter(dict[str, Any])


class Asked(NamedTuple):
    """A request that was understood.

    Args:
        corpus: The name in its path.
        body: What was sent.
        wait_ms: How long the caller waits for a write to show.
    """

    corpus: str
    body: Any = None
    wait_ms: int = 0


Read = Callable[[Request], Awaitable[Asked]]


class CorporaRoutes:
    """The routes; an ``Extension`` of the API.

    Args:
        corpora: Answers.
        limits: Of bodies.
    """

    def __init__(self, corpora: Corpora, limits: CorporaHttp) -> None:
        self._corpora = corpora
        self._limits = limits
        self._log = RequestLog()
        self._writing = 0

    @property
    def section(self) -> Section:
        """Their part of the OpenAPI document."""
        return section()

    def add_to(self, app: FastAPI, api: Api) -> None:
        """Add them to an app."""
        large, corpora, one = self._limits.max_body_bytes, self._corpora, f"{_ROOT}/{{corpus}}"
        ingest_batch, delete = _body(api, IngestBatchRequest, large), _body(api, DeleteSourcesRequest, large)
        retrieve, retrieve_batch = _body(api, RetrieveRequest), _body(api, RetrieveBatchRequest)
        for method, path, name, read, answer in (
            ("POST", f"{one}/ingest", "corpus_ingest", _raw(api, large), _written(corpora.ingest)),
            ("POST", f"{one}/ingest/batch", "corpus_ingest_batch", ingest_batch, _written(corpora.ingest_batch)),
            ("POST", f"{one}/retrieve", "corpus_retrieve", retrieve, _answered(corpora.retrieve)),
            ("POST", f"{one}/retrieve/batch", "corpus_retrieve", retrieve_batch, _answered(corpora.retrieve_batch)),
            ("POST", f"{one}/sources/delete", "corpus_delete", delete, _written(corpora.delete)),
            ("DELETE", f"{one}/sources/{{source_id:path}}", "corpus_delete", _source, _written(corpora.delete)),
            ("GET", f"{one}/receipts/{{receipt_id}}", "corpus_receipt", _receipt_id, _answered(corpora.receipt)),
        ):
            endpoint = api.endpoint(name, self._of_known(read), answer)
            writes = name in {"corpus_ingest", "corpus_ingest_batch", "corpus_delete"}
            app.add_route(path, self._bounded(name, endpoint) if writes else endpoint, methods=[method])
        app.add_route(_ROOT, api.endpoint("corpora", _nothing, self._names), methods=["GET"])

    def _bounded(self, name: str, endpoint: Endpoint) -> Endpoint:
        """Refuse what is too much at once, before its body is read."""

        async def bounded(request: Request) -> Response:
            if self._writing >= self._limits.max_writes:
                error = Overloaded("The service has no room for this write.", remedy="Retry in a moment.")
                request_id = request_id_of(request)
                self._log.refused(name, request_id, error.code)
                return error_response(error, request_id)
            self._writing += 1
            try:
                return await endpoint(request)
            finally:
                self._writing -= 1

        return bounded

    def _of_known(self, read: Read) -> Read:
        """Refuse a request to a corpus that there is not, before anything of it is read."""

        async def known(request: Request) -> Asked:
            self._corpora.check(request.path_params["corpus"])
            return await read(request)

        return known

    async def _names(self, ctx: RequestContext, asked: Asked) -> Response:
        return json_response(CorporaResponse(ctx.request_id, self._corpora.names))


def _answered(
    ask: Callable[[RequestContext, str, Any], Awaitable[object]],
) -> Callable[[RequestContext, Asked], Awaitable[Response]]:
    async def answer(ctx: RequestContext, asked: Asked) -> Response:
        return json_response(await ask(ctx, asked.corpus, asked.body))

    return answer


def _written(
    write: Callable[[RequestContext, str, Any, int], Awaitable[Any]],
) -> Callable[[RequestContext, Asked], Awaitable[Response]]:
    """200 when all of it shows or was given up, 202 while it is recorded and no more."""

    async def answer(ctx: RequestContext, asked: Asked) -> Response:
        result = await write(ctx, asked.corpus, asked.body, asked.wait_ms)
        receipt = result if isinstance(result, Receipt) else result.receipt
        pending = receipt is not None and receipt.state == "pending"
        return json_response(result, HTTPStatus.ACCEPTED if pending else HTTPStatus.OK)

    return answer


async def _nothing(request: Request) -> Asked:
    return Asked("")


async def _receipt_id(request: Request) -> Asked:
    return Asked(request.path_params["corpus"], request.path_params["receipt_id"])


async def _source(request: Request) -> Asked:
    """The source of the path; what the query holds beside ``wait_ms`` are dimensions."""
    dimensions: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in dimensions:
            raise InvalidBody("A parameter is given twice.", field=name[:256], remedy="Give it once.")
        if name != _WAIT:
            dimensions[name] = value
    body = DeleteSourcesRequest(source_ids=[request.path_params["source_id"]], dimensions=dimensions)
    return Asked(request.path_params["corpus"], body, _wait_ms(request))


def _raw(api: Api, limit: int) -> Read:
    return _decoded(api, _OBJECT.validate_json, limit)


def _body(api: Api, kind: type[Body], limit: int | None = None) -> Read:
    return _decoded(api, kind.model_validate_json, limit)


def _decoded(api: Api, decode: Callable[[bytes], object], limit: int | None) -> Read:
    async def read(request: Request) -> Asked:
        data = await api.body(request, limit)
        body = decode(data) if len(data) < _LARGE else await asyncio.to_thread(decode, data)
        return Asked(request.path_params["corpus"], body, _wait_ms(request))

    return read


def _wait_ms(request: Request) -> int:
    text = request.query_params.get(_WAIT, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidBody("wait_ms is no number of milliseconds.", field=_WAIT, remedy="Send 0 or more.")
    return int(text)
