"""The OpenAPI document, from the contracts themselves: requests from pydantic, responses from msgspec."""

from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from pydantic.json_schema import models_json_schema

from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ErrorBody, ReadBatchResponse, ReadMemoryResponse, SearchMemoryResponse

_REF = "#/components/schemas/"
_ERRORS = {
    400: "The request can't be answered as it is: RET-4001 to RET-4005.",
    401: "No credentials, or ones that are not valid: RET-4011.",
    403: "Outside the caller's scope, whether it exists or not: RET-4031, RET-4032.",
    408: "The body did not come in time: RET-4080.",
    413: "The body is too long: RET-4130.",
    422: "The body has the wrong shape; `field` names the place: RET-4220.",
    429: "The service has no room: RET-4291; the account or key is over a limit: RET-4292. `Retry-After` says when.",
    500: "An unexpected failure.",
    503: "A stage is down: RET-5001 to RET-5004, RET-5042. Retry.",
    504: "A stage ran out of time: RET-5041. Retry.",
}
_HEADERS: Mapping[str, Mapping[str, Any]] = {
    "Retry-After": {
        "description": "Seconds after which it is worth trying again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate.",
        "required": True,
        "schema": {"type": "string", "const": "Bearer"},
    },
}
# By status, the header that an error answer always has.
_HEADER_OF = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After", 504: "Retry-After"}


class Health(msgspec.Struct, frozen=True):
    """The process lives."""

    status: str = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """Whether the graph can answer searches.

    Args:
        ready: Every stage answers and the index holds something.
        stages: ``ok`` or what is wrong, by stage.
        reason: Why it is not ready; empty when it is.
    """

    ready: bool
    stages: dict[str, str]
    reason: str = ""


class Section(NamedTuple):
    """A part of the document: routes of an extension.

    Args:
        paths: As OpenAPI has them.
        requests: Pydantic models that they name.
        responses: Structs that they name.
    """

    paths: Mapping[str, Any]
    requests: tuple[type, ...] = ()
    responses: tuple[type, ...] = ()


_REQUESTS = (SearchMemoryRequest, ReadMemoryRequest, ReadBatchRequest)
_RESPONSES = (SearchMemoryResponse, ReadMemoryResponse, ReadBatchResponse, ErrorBody, Health, Readiness)


def document(*sections: Section) -> dict[str, Any]:
    """The document, OpenAPI 3.1.

    Args:
        sections: Of the extensions that are switched on.
    """
    taken = [*_REQUESTS, *(kind for section in sections for kind in section.requests)]
    given = [*_RESPONSES, *(kind for section in sections for kind in section.responses)]
    _, requests = models_json_schema([(kind, "validation") for kind in taken], ref_template=_REF + "{model}")
    _, responses = msgspec.json.schema_components(given, ref_template=_REF + "{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strata",
            "version": version("strata"),
            "description": "Layered context retrieval: search L0 abstracts, then read L1 overviews and L2 contents.",
        },
        "security": [{"key": []}],
        "paths": {
            "/v1/search_memory": _post(
                "search_memory",
                "Search L0 abstracts. Reads no L1 or L2; `next_actions` names what is worth reading.",
                SearchMemoryRequest,
                SearchMemoryResponse,
            ),
            "/v1/read_memory": _post(
                "read_memory", "Read the L1 overview or L2 content of one URI.", ReadMemoryRequest, ReadMemoryResponse
            ),
            "/v1/read_batch": _post(
                "read_batch",
                "Read several URIs; those that may not be read are listed, not answered.",
                ReadBatchRequest,
                ReadBatchResponse,
            ),
            "/healthz": {"get": _probe("healthz", "Whether the process lives.", {200: Health})},
            "/readyz": {"get": _probe("readyz", "Whether searches can be answered.", {200: Readiness, 503: Readiness})},
            **{path: route for section in sections for path, route in section.paths.items()},
        },
        "components": {
            "schemas": {**requests["$defs"], **responses},
            "headers": _HEADERS,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key (strata keys create), or a JWT."}
            },
        },
    }


def _post(name: str, summary: str, request: type, response: type) -> dict[str, Any]:
    answers = {"200": answer("The answer; `degraded` says what was missing.", response)} | errors()
    return {"post": {"operationId": name, "summary": summary, "requestBody": body(ref(request)), "responses": answers}}


def body(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A body in JSON that must be there."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def errors(more: Mapping[int, str] = MappingProxyType({})) -> dict[str, Any]:
    """The errors that any request of a caller may get, and more: meanings by status."""
    return {str(status): _error(status, meaning) for status, meaning in sorted({**_ERRORS, **more}.items())}


def _error(status: int, meaning: str) -> dict[str, Any]:
    header = _HEADER_OF.get(status)
    headers = {"headers": {header: {"$ref": f"#/components/headers/{header}"}}} if header else {}
    return answer(meaning, ErrorBody) | headers


def _probe(name: str, summary: str, answers: Mapping[int, type]) -> dict[str, Any]:
    responses = {str(status): answer(kind.__doc__ or "", kind) for status, kind in answers.items()}
    return {"operationId": name, "summary": summary, "security": [], "responses": responses}


def answer(description: str, kind: type) -> dict[str, Any]:
    """An answer in JSON."""
    return {
        "description": description.strip().splitlines()[0],
        "content": {"application/json": {"schema": ref(kind)}},
    }


def ref(kind: type) -> dict[str, str]:
    """The schema of a model or struct of the document."""
    return {"$ref": _REF + kind.__name__}
