"""Request bodies at the HTTP edge (seed 1 §4.1): strict pydantic, unknown fields refused by name."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.errors import BlankQuery, InvalidBody, RequestError, ThresholdOutOfRange, TopKOutOfRange
from contracts.query import ContextType
from contracts.text import UNSTORABLE
from contracts.uri import parse_space

MAX_TOP_K = 50
MAX_QUERY = 8192
_MAX_FIELD = 256


def check_query(query: str) -> None:
    """Refuse what is no query.

    Raises:
        BlankQuery
    """
    if not query.strip() or len(query) > MAX_QUERY or UNSTORABLE.search(query):
        raise BlankQuery(
            "query is blank or not text.", field="query", remedy=f"Send 1..{MAX_QUERY} characters of text."
        )


def check_top_k(top_k: int) -> None:
    """Refuse a number of hits that can't be had.

    Raises:
        TopKOutOfRange
    """
    if not 1 <= top_k <= MAX_TOP_K:
        raise TopKOutOfRange("top_k is out of range.", field="top_k", remedy=f"Send 1..{MAX_TOP_K}.")


def check_threshold(threshold: float | None, *, field: str) -> None:
    """Refuse a threshold that is none; ``None`` is the server's own.

    Raises:
        ThresholdOutOfRange
    """
    if threshold is not None and not (math.isfinite(threshold) and 0 <= threshold <= 1):
        raise ThresholdOutOfRange(f"{field} is out of range.", field=field, remedy="Send 0..1.")


class Strict(BaseModel):
    """Base of every request body."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TimeRangeBody(Strict):
    """Bounds on ``updated_at``."""

    start: int | None = Field(None, ge=0, le=2**53, description="Milliseconds since the epoch, inclusive.")
    end: int | None = Field(None, ge=0, le=2**53, description="Milliseconds since the epoch, inclusive.")


class PlannerHintsBody(Strict):
    """How the caller steers the planner."""

    intent: str | None = Field(None, max_length=256, description="Free text, carried in the typed queries.")
    context_types: list[ContextType] = Field([], max_length=3, description="Search these and no others.")
    categories: list[str] = Field([], max_length=32)
    must_have_terms: list[str] = Field([], max_length=32, description="A hit lacking one of them is dropped.")
    exclude_terms: list[str] = Field([], max_length=32, description="A hit holding one of them is dropped.")


class SessionArchiveBody(Strict):
    """What the session so far was about."""

    topics: list[str] = Field([], max_length=32, description="They complete a query too short to stand by itself.")
    context_types: list[ContextType] = Field([], max_length=3, description="Types searched lately.")


class SearchMemoryRequest(Strict):
    """``POST /v1/search_memory``."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "run a command and stop it after a timeout", "top_k": 5}]}
    )

    query: str = Field(description="What to look for, in Chinese or English.")
    top_k: int = Field(10, description="Hits wanted, 1..50.")
    score_threshold: float | None = Field(None, description="0..1; null means the server's default.")
    score_gte: bool = Field(False, description="Keep hits at the threshold too.")
    categories: list[str] = Field([], max_length=32, description="Preferred categories; they lift, not exclude.")
    target_uri: str | None = Field(None, description="Search only this subtree.")
    owner_space: str | None = Field(None, description="Search only this space; can only narrow.")
    filter: dict[str, Any] | None = Field(None, description="Further filter in the JSON form of the algebra.")
    time_range: TimeRangeBody | None = None
    session_archive: SessionArchiveBody | None = None
    planner_hints: PlannerHintsBody | None = None
    timeout_ms: int | None = Field(None, ge=1, description="At most the server's own.")
    include_debug: bool = False
    trace_level: Literal["basic", "detailed"] = "basic"

    def check(self) -> None:
        """The checks that have codes of their own (C3).

        Raises:
            BlankQuery, TopKOutOfRange, ThresholdOutOfRange, InvalidUri
        """
        check_query(self.query)
        check_top_k(self.top_k)
        check_threshold(self.score_threshold, field="score_threshold")
        if self.owner_space is not None:
            parse_space(self.owner_space)


class ReadMemoryRequest(Strict):
    """``POST /v1/read_memory``."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"uri": "strata://shared/python/subprocess/run"}]})

    uri: str
    level: Literal["L1", "L2"] = "L1"
    expand_relations: bool = False
    max_relations: int = Field(0, ge=0, le=100)
    include_debug: bool = Field(False, description="Changes nothing: the trace of a read is always whole.")


class ReadBatchRequest(Strict):
    """``POST /v1/read_batch``."""

    uris: list[str] = Field(min_length=1, max_length=50)
    level: Literal["L1", "L2"] = "L1"


def request_error(
    error: ValidationError, own_codes: Mapping[str, type[RequestError]] = MappingProxyType({})
) -> RequestError:
    """What is wrong with a body of the wrong shape, in words: its first fault, with the dotted field.

    Args:
        error: As pydantic found it.
        own_codes: Errors other than ``InvalidBody`` by field.
    """
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    # A caller chooses the names of fields that it makes up.
    field = ".".join(str(part) for part in first["loc"])[:_MAX_FIELD]
    kind = own_codes.get(field, InvalidBody)
    match first["type"]:
        case "extra_forbidden":
            return kind("The body has an unknown field.", field=field, remedy="Remove it.")
        case "missing":
            return kind("The body lacks a field.", field=field, remedy="Add it.")
        case "json_invalid":
            return kind("The body is no JSON.", remedy="Send a JSON object.")
        case _:
            return kind(f"{first['msg']}.", field=field, remedy="See /docs for the fields.")
