"""Hits, from the recall to the answer (seed 1 §3.2, §3.3, C2)."""

from typing import Literal

import msgspec

Level = Literal["L0", "L1", "L2"]
ReadRecommendation = Literal["none", "read_l1", "read_l2"]


class ScoreBreakdown(msgspec.Struct, frozen=True, gc=False):
    """What a score is made of, each part in 0..1 (design decision 7).

    Args:
        vector: Cosine between query and node, negative clipped to 0.
        keyword: Lexical coverage, BM25 / sum of the query's idf.
        relevance: (keyword + beta * vector) / (1 + beta), the ``vector_score`` of C15.
        hierarchy: Relevance of the parents by text.
        category: 1 when the node's category is one the query asks for.
        target: 1 when the node lies in the target URI's subtree.
        rerank: The reranker's probability, when it scored this hit.
    """

    vector: float = 0.0
    keyword: float = 0.0
    relevance: float = 0.0
    hierarchy: float = 0.0
    category: float = 0.0
    target: float = 0.0
    rerank: float | None = None


class SeedHit(msgspec.Struct, frozen=True):
    """A first-round hit on an L0 abstract (§3.2)."""

    uri: str
    score: float
    category: str
    owner_space: str
    abstract: str
    has_overview: bool
    has_content: bool
    match_reason: str


class NodeHit(msgspec.Struct, array_like=True):
    """A candidate as it travels between stages: index metadata and abstract, never L1 or L2 text."""

    uri: str
    parent_uri: str
    name: str
    kind: str
    category: str
    owner_space: str
    context_type: str
    depth: int
    abstract: str
    has_overview: bool
    has_content: bool
    has_children: bool
    score: float
    scores: ScoreBreakdown
    match_reason: str
    query: int = 0

    def seed(self) -> SeedHit:
        """The minimal fields of §3.2."""
        return SeedHit(
            self.uri,
            self.score,
            self.category,
            self.owner_space,
            self.abstract,
            self.has_overview,
            self.has_content,
            self.match_reason,
        )


class Relation(msgspec.Struct, frozen=True):
    """An edge to another node; ``weight`` in 0..1."""

    to_uri: str
    relation_type: str
    weight: float = 1.0


class RetrievedBlock(msgspec.Struct, frozen=True):
    """One block of an answer (§3.3). A search fills the abstract only; overview and content come by reading."""

    uri: str
    level_hit: Level
    score: float
    category: str
    owner_space: str
    abstract: str | None
    overview: str | None
    content_excerpt: str | None
    relations: tuple[Relation, ...]
    has_overview: bool
    has_content: bool
    read_recommendation: ReadRecommendation
    match_reason: str
    scores: ScoreBreakdown | None = None
