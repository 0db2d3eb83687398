"""The body of a retrieval at the HTTP edge; that of an ingest is its corpus's own."""

from typing import Any

from pydantic import ConfigDict, Field

from contracts.errors import InvalidBody
from contracts.requests import Strict, check_query, check_threshold, check_top_k
from corpora.rag.types import Raw

OPTIONS = "options"


class RetrieveRequest(Strict):
    """``POST /v1/corpora/{name}/retrieve``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query": "which tea does she like",
                    "dimensions": {"user_id": "alice", "assistant_id": "helper", "conversation_id": "c-1"},
                }
            ]
        }
    )

    query: str = Field(description="What to look for, in Chinese or English.")
    dimensions: dict[str, Any] = Field({}, description="The corpus's dimensions; mandatory ones must be there.")
    options: dict[str, Any] = Field({}, description="The corpus's own options.")
    top_k: int | None = Field(None, description="Hits wanted, 1..50; null means the server's default.")
    threshold: float | None = Field(None, description="Least relevance, 0..1; null means the server's default.")
    rerank: bool | None = Field(None, description="Whether to rerank; null means the server's default.")
    filter: dict[str, Any] | None = Field(None, description="Further filter in the JSON form of the algebra.")
    timeout_ms: int | None = Field(None, ge=1, description="At most the server's own.")

    def check(self) -> None:
        """The checks that have codes of their own.

        Raises:
            BlankQuery, TopKOutOfRange, ThresholdOutOfRange, InvalidBody
        """
        check_query(self.query)
        if self.top_k is not None:
            check_top_k(self.top_k)
        check_threshold(self.threshold, field="threshold")
        if OPTIONS in self.dimensions:
            raise InvalidBody(
                f"{OPTIONS} is no dimension.", field=f"dimensions.{OPTIONS}", remedy="Send it beside the dimensions."
            )

    def raw(self) -> Raw:
        """What the corpus's adapter reads: the dimensions, and its options under ``options``."""
        return {**self.dimensions, OPTIONS: self.options}
