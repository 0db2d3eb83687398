"""Bodies of the routes of corpora that are not a corpus's own, and what they answer."""

from typing import Any

import msgspec
from pydantic import Field

from contracts.requests import Strict
from contracts.responses import ErrorBody
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import Receipt, Retrieved


class IngestBatchRequest(Strict):
    """``POST /v1/corpora/{name}/ingest/batch``."""

    requests: list[dict[str, Any]] = Field(min_length=1, description="Bodies as of ``ingest``; each judged by itself.")


class RetrieveBatchRequest(Strict):
    """``POST /v1/corpora/{name}/retrieve/batch``."""

    requests: list[RetrieveRequest] = Field(min_length=1, description="Answered side by side.")
    timeout_ms: int | None = Field(None, ge=1, description="For all of them; at most the server's own.")


class DeleteSourcesRequest(Strict):
    """``POST /v1/corpora/{name}/sources/delete``."""

    source_ids: list[str] = Field(min_length=1, description="As they were ingested.")
    dimensions: dict[str, Any] = Field({}, description="Where they lie: the corpus's dimensions, as of ``retrieve``.")


class CorporaResponse(msgspec.Struct, frozen=True):
    """The names of the corpora."""

    request_id: str
    corpora: tuple[str, ...]


class RefusedBody(msgspec.Struct, frozen=True):
    """A body of a batch of which nothing was stored, by its place from 0, and why."""

    index: int
    code: str
    message: str
    field: str = ""
    remedy: str = ""


class BatchReceipt(msgspec.Struct, frozen=True):
    """One receipt for all bodies that were taken; ``null`` when none was."""

    request_id: str
    corpus: str
    receipt: Receipt | None
    refused: tuple[RefusedBody, ...] = ()


class BatchAnswer(msgspec.Struct, frozen=True):
    """The answer to one retrieval of a batch, or the error that it got."""

    answer: Retrieved | None = None
    error: ErrorBody | None = None


class RetrievedBatch(msgspec.Struct, frozen=True):
    """Answers in the order of the requests."""

    request_id: str
    corpus: str
    results: tuple[BatchAnswer, ...]
