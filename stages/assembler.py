"""Assembler: candidates to answer blocks, L0 abstract first, with what to read next (C6, C14, C15)."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.hits import NodeHit, ReadRecommendation, RetrievedBlock
from contracts.stages import AssembleRequest, Assembly, NextActions
from stages.scoring import rank_key


class AssemblerConfig(BaseModel):
    """What is recommended for reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    l1_reads: int = Field(5, ge=0, le=50, description="Most L1 URIs recommended; each one is a read the caller pays.")
    l2_reads: int = Field(3, ge=0, le=50, description="Most L2 URIs recommended; contents are long.")


class Assembler:
    """The assembler stage."""

    def __init__(self, config: AssemblerConfig) -> None:
        self._config = config

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: AssembleRequest) -> Assembly:
        """Fold duplicates to the best, apply the threshold, cut to the limit; reads nothing."""
        chosen, filtered = select(request)
        return Assembly(tuple(map(block, chosen)), self._next_actions(chosen), filtered)

    def _next_actions(self, hits: list[NodeHit]) -> NextActions:
        l1 = [hit.uri for hit in hits if hit.has_overview]
        l2 = [hit.uri for hit in hits if hit.has_content and not hit.has_children]
        return NextActions(tuple(l1[: self._config.l1_reads]), tuple(l2[: self._config.l2_reads]))


def select(request: AssembleRequest) -> tuple[list[NodeHit], int]:
    """The hits of an answer, best first, and how many the threshold took."""
    unique = best_by_uri(hit for hits in request.hits for hit in hits)
    passed = [hit for hit in unique if passes(hit.score, request.threshold, gte=request.gte)]
    return passed[: request.limit], len(unique) - len(passed)


def best_by_uri(hits: Iterable[NodeHit]) -> list[NodeHit]:
    """Each URI once with its highest score, best first; ties prefer ``has_overview`` (C15)."""
    best: dict[str, NodeHit] = {}
    for hit in sorted(hits, key=rank_key):
        best.setdefault(hit.uri, hit)
    return list(best.values())


def passes(score: float, threshold: float | None, *, gte: bool) -> bool:
    """Whether a score passes: ``>`` by default, ``>=`` with ``gte`` (C4); no threshold passes all."""
    if threshold is None:
        return True
    return score >= threshold if gte else score > threshold


def block(hit: NodeHit) -> RetrievedBlock:
    """The answer block of a hit: its abstract; overview and content stay for ``read_memory``."""
    return RetrievedBlock(
        uri=hit.uri,
        level_hit="L0",
        score=hit.score,
        category=hit.category,
        owner_space=hit.owner_space,
        abstract=hit.abstract,
        overview=None,
        content_excerpt=None,
        relations=(),
        has_overview=hit.has_overview,
        has_content=hit.has_content,
        read_recommendation=_recommendation(hit),
        match_reason=hit.match_reason,
        scores=hit.scores,
    )


def _recommendation(hit: NodeHit) -> ReadRecommendation:
    if hit.has_overview:
        return "read_l1"
    return "read_l2" if hit.has_content else "none"
