"""Searching and reading with the stages in this process, under the identity that the key gives."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from contracts.context import RequestContext
from contracts.requests import ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ReadMemoryResponse, SearchMemoryResponse
from deployments.http_errors import as_strata_error
from deployments.identity.opening import context_of
from deployments.local import LocalService, open_local
from deployments.settings import Settings

Body = TypeVar("Body", bound=BaseModel)
Answer = TypeVar("Answer")


async def search(settings: Settings, token: str, body: dict[str, Any]) -> SearchMemoryResponse:
    """As ``POST /v1/search_memory``."""
    return await _answer(settings, token, SearchMemoryRequest, body, LocalService.search)


async def read(settings: Settings, token: str, body: dict[str, Any]) -> ReadMemoryResponse:
    """As ``POST /v1/read_memory``."""
    return await _answer(settings, token, ReadMemoryRequest, body, LocalService.read)


async def _answer(
    settings: Settings,
    token: str,
    kind: type[Body],
    body: dict[str, Any],
    ask: Callable[[LocalService, RequestContext, Body], Awaitable[Answer]],
) -> Answer:
    ctx = await context_of(settings, token, "in-process")
    try:
        request = kind.model_validate(body)
    except ValidationError as error:
        raise as_strata_error(error) from None
    service = await open_local(settings)
    try:
        return await ask(service, ctx, request)
    finally:
        await service.close()
