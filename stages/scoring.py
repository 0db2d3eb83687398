"""How a candidate is scored: relevance on absolute scales, then the weighted sum of C15.

Relevance of a hybrid hit is ``(keyword + beta * vector) / (1 + beta)``: lexical coverage (BM25 over the sum of the
query's idf) plus the cosine, both in 0..1 whatever the query, so that a query whose words are not in the index leans on
meaning by itself. Reciprocal ranks lose to BM25 alone where one recall is much better than the other.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from contracts.errors import RecallFailed
from contracts.hits import NodeHit, ScoreBreakdown
from contracts.ports import Recalled, RecallHit
from contracts.query import TypedQuery
from contracts.trace import Degradation
from contracts.uri import is_under


class Weights(BaseModel):
    """Weights of C15; they must sum to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vector: float = Field(0.65, ge=0, le=1, description="Relevance of the node itself.")
    hierarchy: float = Field(0.20, ge=0, le=1, description="Relevance of its parents: lifts whole subtrees.")
    category: float = Field(0.10, ge=0, le=1, description="Being of a category the query asks for.")
    target: float = Field(0.05, ge=0, le=1, description="Lying under the target URI.")

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.vector + self.hierarchy + self.category + self.target
        if abs(total - 1) > 1e-6:  # noqa: PLR2004 -- rounding of decimal weights
            raise ValueError(f"the weights add up to {total:g}, not to 1")
        return self


class ScoringConfig(BaseModel):
    """How scores are made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    beta: float = Field(0.7, ge=0, le=10, description="Weight of meaning against words; higher suits good embedders.")
    betas: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(
        {"function": 1.5, "class": 1.5, "module": 1.5},
        description="The same by kind of node; a one-line abstract holds too few words to go by them alone.",
    )
    weights: Weights = Weights()
    depth_decay: float = Field(0.5, ge=0, le=1, description="How much of a grandparent's relevance reaches a node.")

    def beta_of(self, kind: str) -> float:
        """Beta for a kind of node."""
        return self.betas.get(kind, self.beta)


def relevance(keyword: float | None, vector: float | None, beta: float) -> float:
    """Relevance in 0..1.

    Args:
        keyword: Lexical coverage in 0..1, or ``None`` when keyword recall failed.
        vector: Cosine in 0..1, or ``None`` when vector recall failed; the other then stands alone, on its own scale.
        beta: Weight of the vector score.
    """
    if vector is None:
        return keyword or 0.0
    if keyword is None:
        return vector
    return (keyword + beta * vector) / (1 + beta)


def final_score(scores: ScoreBreakdown, weights: Weights) -> float:
    """0.65 vector + 0.20 hierarchy + 0.10 category + 0.05 target_uri by default (C15, seed 1 §6)."""
    return (
        weights.vector * scores.relevance
        + weights.hierarchy * scores.hierarchy
        + weights.category * scores.category
        + weights.target * scores.target
    )


def missing(answer: Recalled, vectors: object | None) -> frozenset[str]:
    """The scores that an answer does not have: of recalls that failed, and of vectors that there were none of."""
    return frozenset(answer.failed) | ({"dense"} if vectors is None else frozenset())


def degradations(stage: str, answers: Sequence[Recalled]) -> tuple[Degradation, ...]:
    """What the recalls of a stage could not do, each part once."""
    reasons = {f"{part} recall failed: {why}" for answer in answers for part, why in answer.failed.items()}
    reasons |= {f"{part} recall is incomplete: {why}" for answer in answers for part, why in answer.partial.items()}
    return tuple(Degradation(stage, f"{RecallFailed.code}: {reason}", 0) for reason in sorted(reasons))


class Scorer:
    """Makes recalled records of one typed query scored candidates, their parents not yet looked at.

    Args:
        query: The typed query that found them.
        position: The position of that query in its request.
        config: Scales and weights.
        unknown: Recalls whose score can't be had (``dense``, ``keyword``), from :func:`missing`.
    """

    def __init__(self, query: TypedQuery, position: int, config: ScoringConfig, unknown: Collection[str]) -> None:
        self._query = query
        self._position = position
        self._config = config
        self._dense, self._keyword = "dense" not in unknown, "keyword" not in unknown

    def __call__(self, hit: RecallHit, reason: str = "") -> NodeHit:
        """The candidate.

        Args:
            hit: The record.
            reason: How it was reached; by default which recall found it.
        """
        config, query = self._config, self._query
        scores = ScoreBreakdown(
            hit.vector,
            hit.keyword,
            relevance(
                hit.keyword if self._keyword else None,
                hit.vector if self._dense else None,
                config.beta_of(hit.kind),
            ),
            0.0,
            float(hit.category in query.categories),
            float(query.target_uri is not None and is_under(hit.uri, query.target_uri)),
        )
        # By position: there are hundreds a search, and names would cost half of the time again.
        return NodeHit(
            hit.uri,
            hit.parent_uri,
            hit.name,
            hit.kind,
            hit.category,
            hit.owner_space,
            hit.context_type,
            hit.depth,
            hit.abstract,
            hit.has_overview,
            hit.has_content,
            hit.has_children,
            final_score(scores, config.weights),
            scores,
            reason or f"recalled:{hit.found_by}",
            self._position,
        )


def with_hierarchy(hit: NodeHit, hierarchy: float, weights: Weights) -> NodeHit:
    """The same candidate with its parents' relevance in the score."""
    if hierarchy == hit.scores.hierarchy:
        return hit
    scores = msgspec.structs.replace(hit.scores, hierarchy=hierarchy)
    return msgspec.structs.replace(hit, scores=scores, score=final_score(scores, weights))


def rank_key(hit: NodeHit) -> tuple[bool, float, bool, int, str]:
    """Sort key, best first: reranked before not, score, ``has_overview`` on ties (C15), then query and URI."""
    return (hit.scores.rerank is None, -hit.score, not hit.has_overview, hit.query, hit.uri)
