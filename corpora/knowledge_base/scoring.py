"""How candidates are fused and scored (K2).

Each of the two recalls ranks the candidates that passed all hard filters, best first from 1, by its own score. A
candidate's fusion is ``rrf = 1 / (60 + rank_vec) + 1 / (60 + rank_kw)``, a recall in which it scored nothing adding 0
(Cormack, Clarke, Büttcher: Reciprocal rank fusion, SIGIR 2009). The best by fusion are scored::

    final = 0.45 * vector + 0.2 * keyword + 0.25 * rule + 0.1 * freshness        weights in the config, sum 1

with each part in 0..1, so that the final score is too:

==========  ==========================================================================================================
vector      Cosine of query and chunk, negative ones 0.
keyword     BM25 of the chunk over the sum of the query's idf: the share of the query that the chunk covers.
rule        The caller's boost of the chunk; when one exceeds 1, all are divided by the largest of them.
freshness   ``0.5 ** (age / half-life)``; the age is that of the entity's content, 0 for one of the future.
==========  ==========================================================================================================

Equal final scores are ordered by fusion, then by chunk id: the same candidates always have the same order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contracts.errors import InvalidBody
from corpora.knowledge_base.config import Weights
from corpora.knowledge_base.types import ScoredChunk

RRF_K = 60
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Candidate:
    """A chunk that passed all hard filters; ``updated_at`` of its entity, milliseconds since the epoch."""

    chunk_id: str
    entity_id: str
    text: str
    chunk_type: str
    entity_type: str
    updated_at: int
    vec_score: float
    kw_score: float


@dataclass(frozen=True)
class Scoring:
    """What scores depend on besides the candidates.

    Args:
        weights: Of the four parts.
        half_life_days: Age at which freshness is one half.
        now: Milliseconds since the epoch.
        boosts: The caller's, by chunk id.
    """

    weights: Weights
    half_life_days: float
    now: int
    boosts: Mapping[str, float]

    def score(self, candidates: Sequence[Candidate], pool: int) -> list[ScoredChunk]:
        """Fuse, and score the ``pool`` best by fusion; best first."""
        by_vector, by_keyword = (ranks([getattr(c, part) for c in candidates]) for part in ("vec_score", "kw_score"))
        fused = [rrf(*pair) for pair in zip(by_vector, by_keyword, strict=True)]
        best = sorted(zip(candidates, fused, strict=True), key=lambda pair: (-pair[1], pair[0].chunk_id))[:pool]
        rules = rule_parts(self.boosts)
        scored = [self._scored(candidate, fusion, rules.get(candidate.chunk_id, 0.0)) for candidate, fusion in best]
        return sorted(scored, key=lambda result: (-result.final_score, -result.rrf, result.chunk_id))

    def _scored(self, candidate: Candidate, fusion: float, rule: float) -> ScoredChunk:
        fresh = freshness(self.now - candidate.updated_at, self.half_life_days)
        return ScoredChunk(
            chunk_id=candidate.chunk_id,
            entity_id=candidate.entity_id,
            text=candidate.text,
            vec_score=candidate.vec_score,
            kw_score=candidate.kw_score,
            final_score=final_score(candidate.vec_score, candidate.kw_score, rule, fresh, self.weights),
            rule_score=rule,
            freshness=fresh,
            rrf=fusion,
            entity_type=candidate.entity_type,
            chunk_type=candidate.chunk_type,
        )


def ranks(scores: Sequence[float]) -> list[int | None]:
    """The rank of each score, the highest 1, equal ones alike; ``None`` for what scored nothing."""
    first: dict[float, int] = {}
    for rank, score in enumerate(sorted(scores, reverse=True), start=1):
        first.setdefault(score, rank)
    return [first[score] if score > 0 else None for score in scores]


def rrf(rank_vec: int | None, rank_kw: int | None) -> float:
    """``1 / (60 + rank_vec) + 1 / (60 + rank_kw)``; a rank that is ``None`` adds 0."""
    return sum(1 / (RRF_K + rank) for rank in (rank_vec, rank_kw) if rank is not None)


def final_score(vector: float, keyword: float, rule: float, fresh: float, weights: Weights) -> float:
    """The weighted sum of the four parts, each in 0..1."""
    return weights.vector * vector + weights.keyword * keyword + weights.rule * rule + weights.freshness * fresh


def freshness(age_ms: float, half_life_days: float) -> float:
    """``0.5 ** (age / half-life)``, 1 for an age below 0."""
    return float(0.5 ** (max(0.0, age_ms) / (half_life_days * _DAY_MS)))


def rule_parts(boosts: Mapping[str, float]) -> dict[str, float]:
    """The boosts on the scale 0..1: as they are, or over the largest of them where that exceeds 1.

    Raises:
        InvalidBody: A boost is negative or no finite number.
    """
    if any(not math.isfinite(boost) or boost < 0 for boost in boosts.values()):
        raise InvalidBody(
            "rule_boost has a value that is no number of at least 0.",
            field="rule_boost",
            remedy="Send 0..1; where one is larger, all are divided by the largest.",
        )
    largest = max(1.0, *boosts.values(), 1.0)
    return {chunk_id: boost / largest for chunk_id, boost in boosts.items()}


def above(candidates: Iterable[Candidate], min_vector: float) -> list[Candidate]:
    """Those that count: a word of the query was found in them, or their cosine is at least ``min_vector``."""
    return [each for each in candidates if each.kw_score > 0 or each.vec_score >= min_vector]
