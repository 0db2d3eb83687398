"""Request bodies at the HTTP edge (seed 1 §4.1): strict pydantic, unknown fields refused by name."""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from contracts.errors import BlankQuery, ThresholdOutOfRange, TopKOutOfRange
from contracts.query import ContextType
from contracts.uri import parse_space

MAX_TOP_K = 50
MAX_QUERY = 8192


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
        if not self.query.strip() or len(self.query) > MAX_QUERY or "\x00" in self.query:
            raise BlankQuery(
                "query is blank or not text.",
                field="query",
                remedy=f"Send 1..{MAX_QUERY} characters of text.",
            )
        if not 1 <= self.top_k <= MAX_TOP_K:
            raise TopKOutOfRange("top_k is out of range.", field="top_k", remedy=f"Send 1..{MAX_TOP_K}.")
        limit = self.score_threshold
        if limit is not None and not (math.isfinite(limit) and 0 <= limit <= 1):
            raise ThresholdOutOfRange("score_threshold is out of range.", field="score_threshold", remedy="Send 0..1.")
        if self.owner_space is not None:
            parse_space(self.owner_space)


class ReadMemoryRequest(Strict):
    """``POST /v1/read_memory``."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"uri": "strata://shared/python/subprocess/run"}]})

    uri: str
    level: Literal["L1", "L2"] = "L1"
    expand_relations: bool = False
    max_relations: int = Field(0, ge=0, le=100)
    include_debug: bool = False


class ReadBatchRequest(Strict):
    """``POST /v1/read_batch``."""

    uris: list[str] = Field(min_length=1, max_length=50)
    level: Literal["L1", "L2"] = "L1"
