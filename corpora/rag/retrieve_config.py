"""What can be set about retrieval from corpora."""

from pydantic import BaseModel, ConfigDict, Field

from contracts.requests import MAX_TOP_K


class RetrieveConfig(BaseModel):
    """Limits of a retrieval (R3), and what goes on beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    top_k: int = Field(8, ge=1, le=MAX_TOP_K, description="Hits answered where a request does not say.")
    threshold: float = Field(
        0.55,
        ge=0,
        le=1,
        description="Least relevance of a hit, where a request does not say; on the scale of corpora.calibrations. "
        "Higher answers less, and less that is beside the point.",
    )
    rerank: bool = Field(True, description="Whether the graph's reranker orders hits, where a request does not say.")
    candidates: int = Field(
        MAX_TOP_K,
        ge=1,
        le=MAX_TOP_K,
        description="Hits asked of the graph, before the threshold and the corpus weigh in. More find more, and more "
        "texts are read.",
    )
    timeout_ms: int = Field(1500, ge=1, description="Whole retrieval; a caller may ask for less, never for more.")
    rerank_timeout_ms: int = Field(1200, ge=1, description="Longest wait for the reranker; then the order before it.")
    reader_reserve_ms: int = Field(
        150, ge=1, description="Kept of the whole for reading the hits' texts, whatever comes before it."
    )
    switch_timeout_ms: int = Field(100, ge=1, description="Longest wait for the decision which path answers.")
    max_shadows: int = Field(
        8,
        ge=0,
        description="Shadows at once in an ingress; what would be more is not compared. They cost as much as "
        "retrievals do.",
    )
    shadow_timeout_ms: int = Field(3000, ge=1, description="A shadow's own deadline.")
