"""The one place that maps errors to HTTP."""

import math
import re
from collections.abc import Mapping

import msgspec
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from contracts.errors import (
    BlankQuery,
    BodyTimeout,
    RequestError,
    StrataError,
    ThresholdOutOfRange,
    TopKOutOfRange,
    Unauthenticated,
)
from contracts.requests import request_error
from contracts.responses import ErrorBody
from deployments.logs import log_unexpected

# Fields whose errors have a code of their own, whatever is wrong with them (C3).
_OWN_CODES: Mapping[str, type[RequestError]] = {
    "query": BlankQuery,
    "top_k": TopKOutOfRange,
    "score_threshold": ThresholdOutOfRange,
}
# Ids of requests that are fit for logs.
REQUEST_ID = re.compile(r"[!-~]{1,128}")
_JSON = "application/json"


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(body), status, headers, _JSON)


def error_response(error: Exception, request_id: str) -> Response:
    """The answer to a request that failed: an ``ErrorBody``, without internals.

    Args:
        error: A ``StrataError`` says all itself; a ``ValidationError`` of a body is RET-4220 or the field's own code;
            anything else is an unexpected 500.
        request_id: Goes into the body.
    """
    if isinstance(error, HTTPException):
        body = ErrorBody(request_id, f"HTTP-{error.status_code}", str(error.detail))
        return json_response(body, error.status_code, error.headers)
    known = as_strata_error(error)
    return json_response(error_body(error, request_id), known.http_status, _headers(known))


def error_body(error: Exception, request_id: str) -> ErrorBody:
    """What is told of an error; of one that nobody foresaw the place goes to the log.

    Args:
        error: As for :func:`error_response`.
        request_id: Goes into the body.
    """
    known = as_strata_error(error)
    if type(known) is StrataError:
        log_unexpected(error, "the ingress")
    return ErrorBody(
        request_id, known.code, known.message, known.field, known.remedy, known.stage, retryable=known.retryable
    )


def as_strata_error(error: Exception) -> StrataError:
    """The error of our own tree that stands for ``error``."""
    if isinstance(error, StrataError):
        return error
    if isinstance(error, ValidationError):
        return request_error(error, _OWN_CODES)
    return StrataError("The service failed unexpectedly.", remedy="Report it with the request_id.")


def _headers(error: StrataError) -> dict[str, str]:
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, BodyTimeout):
        # What is still to come is no request (RFC 9110, 15.5.9).
        return {"Connection": "close"}
    # Whole seconds, and none too early.
    return {"Retry-After": str(math.ceil(error.retry_after))} if error.retry_after else {}
