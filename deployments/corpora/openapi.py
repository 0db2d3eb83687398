"""The corpora's part of the OpenAPI document."""

from collections.abc import Mapping, Sequence
from typing import Any

from corpora.memory_bodies import MemoryIngestBody
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import Receipt, Retrieved
from corpora.web_bodies import WebIngestBody
from deployments.corpora.messages import (
    BatchReceipt,
    CorporaResponse,
    DeleteSourcesRequest,
    IngestBatchRequest,
    RetrieveBatchRequest,
    RetrievedBatch,
)
from deployments.openapi import Section, answer, body, errors, ref

_NOT_FOUND = {404: "There is no such corpus, or no such receipt: RET-4042."}
_PENDING = "It is recorded durably and does not show yet; the receipt tells when asked for again."
_SETTLED = "All of it shows, or is gone; `state` says `failed` where a part was given up."
_CORPUS = {"name": "corpus", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_SOURCE = {
    "name": "source_id",
    "in": "path",
    "required": True,
    "description": "As it was ingested, percent-encoded; slashes may stand as they are.",
    "schema": {"type": "string", "minLength": 1},
}
_RECEIPT = {"name": "receipt_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_WAIT = {
    "name": "wait_ms",
    "in": "query",
    "description": "How long to wait until it shows; at most the server's own.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
}
_DIMENSIONS = {
    "name": "dimensions",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "The corpus's dimensions, each a parameter of its own.",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}


def section() -> Section:
    """All routes of corpora."""
    any_body = {
        "description": "What the corpus takes: memory, web, or that of a package.",
        "anyOf": [ref(MemoryIngestBody), ref(WebIngestBody), {"type": "object"}],
    }
    at = "/v1/corpora/{corpus}"
    paths = {
        "/v1/corpora": {"get": _route("corpora", "The names of the corpora.", CorporaResponse)},
        f"{at}/ingest": {
            "post": _route("corpus_ingest", "Take one body in.", Receipt, [_CORPUS, _WAIT], any_body),
        },
        f"{at}/ingest/batch": {
            "post": _route(
                "corpus_ingest_batch",
                "Take bodies in, each judged by itself; `refused` names those of which nothing is stored.",
                BatchReceipt,
                [_CORPUS, _WAIT],
                ref(IngestBatchRequest),
            )
        },
        f"{at}/retrieve": {
            "post": _route(
                "corpus_retrieve",
                "The chunks that bear on a query, with their texts.",
                Retrieved,
                [_CORPUS],
                ref(RetrieveRequest),
            )
        },
        f"{at}/retrieve/batch": {
            "post": _route(
                "corpus_retrieve_batch",
                "Several retrievals under one deadline, each with its answer or its error.",
                RetrievedBatch,
                [_CORPUS],
                ref(RetrieveBatchRequest),
            )
        },
        f"{at}/sources/{{source_id}}": {
            "delete": _route("corpus_delete", "Remove a source.", Receipt, [_CORPUS, _SOURCE, _WAIT, _DIMENSIONS])
        },
        f"{at}/sources/delete": {
            "post": _route(
                "corpus_delete_batch", "Remove sources.", Receipt, [_CORPUS, _WAIT], ref(DeleteSourcesRequest)
            )
        },
        f"{at}/receipts/{{receipt_id}}": {
            "get": _route("corpus_receipt", "What became of a write.", Receipt, [_CORPUS, _RECEIPT])
        },
    }
    requests = (
        RetrieveRequest,
        IngestBatchRequest,
        RetrieveBatchRequest,
        DeleteSourcesRequest,
        MemoryIngestBody,
        WebIngestBody,
    )
    return Section(paths, requests, (CorporaResponse, Receipt, BatchReceipt, Retrieved, RetrievedBatch))


def _route(
    name: str,
    summary: str,
    kind: type,
    parameters: Sequence[Mapping[str, Any]] = (),
    asks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    writes = _WAIT in parameters
    answers = {"200": answer(_SETTLED if writes else "The answer.", kind)}
    answers |= {"202": answer(_PENDING, kind)} if writes else {}
    route: dict[str, Any] = {"operationId": name, "summary": summary, "parameters": list(parameters)}
    route |= {"requestBody": body(asks)} if asks else {}
    return route | {"responses": answers | errors(_NOT_FOUND)}
