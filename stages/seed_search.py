"""Seed search: dense and keyword recall side by side over L0 abstracts, fused on absolute scales (C11)."""

from collections.abc import Collection, Sequence

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.filters import Filter
from contracts.hits import NodeHit
from contracts.ports import OTHER_MODEL, Recalled, RecallQuery, SearchIndex
from contracts.query import TypedQuery
from contracts.scope import search_filter
from contracts.stages import QueryVectors, SeedRequest, SeedResult
from contracts.trace import Degradation
from stages.scoring import ScoringConfig, missing, node_hit, rank_key

STAGE = "seed_search"


class SeedSearchConfig(BaseModel):
    """How wide the first round is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(
        100, ge=1, le=1000, description="Candidates from each recall. More find more and cost time (about linear)."
    )
    seeds: int = Field(100, ge=1, le=1000, description="Seeds kept a typed query: what later stages have to carry.")


class SeedSearch:
    """The seed search stage."""

    def __init__(self, index: SearchIndex, config: SeedSearchConfig, scoring: ScoringConfig) -> None:
        self._index = index
        self._config = config
        self._scoring = scoring

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: SeedRequest) -> SeedResult:
        """Recall seeds for all typed queries in one index call.

        A target URI that holds nothing is ignored and reported (RET-4041); vectors of another model than the index's
        are refused, leaving keyword recall (reported as a degradation).

        Raises:
            RecallFailed: Both recalls failed (RET-5001).
            InvalidFilter: The caller's filter names a field the index lacks.
        """
        vectors = request.vectors
        queries = list(request.queries)
        limit = request.limit or self._config.limit
        recalled = await self._recall(ctx, deadline, queries, vectors, request.caller, limit)
        absent = await self._absent_targets(ctx, queries, recalled)
        if absent:
            queries = [msgspec.structs.replace(q, target_uri=None) if q.target_uri in absent else q for q in queries]
            recalled = await self._recall(ctx, deadline, queries, vectors, request.caller, limit)
        keep = max(self._config.seeds, limit)
        return SeedResult(
            hits=[
                self._ranked(answer, query, position, missing(answer, vectors), keep)
                for position, (answer, query) in enumerate(zip(recalled, queries, strict=True))
            ],
            more=any(r.more for r in recalled),
            absent_targets=absent,
            keyword_only=vectors is None or any(r.failed.get("dense") == OTHER_MODEL for r in recalled),
            degraded=_degradations(recalled),
        )

    async def _recall(
        self,
        ctx: RequestContext,
        deadline: Deadline,
        queries: Sequence[TypedQuery],
        vectors: QueryVectors | None,
        caller: Filter | None,
        limit: int,
    ) -> list[Recalled]:
        rows = vectors.unpack() if vectors else [None] * len(queries)
        model = vectors.model if vectors else None
        asked = [
            RecallQuery(query.text, row, search_filter(ctx, query, caller), limit, model)
            for query, row in zip(queries, rows, strict=True)
        ]
        return await self._index.recall(asked, deadline)

    async def _absent_targets(
        self, ctx: RequestContext, queries: Sequence[TypedQuery], recalled: Sequence[Recalled]
    ) -> tuple[str, ...]:
        found = {q.target_uri for q, r in zip(queries, recalled, strict=True) if r.hits}
        doubtful = {q.target_uri for q in queries if q.target_uri} - found
        if not doubtful:
            return ()
        present = await self._index.meta(ctx.account_id, sorted(uri for uri in doubtful if uri))
        return tuple(sorted(uri for uri in doubtful if uri and uri not in present))

    def _ranked(
        self, recalled: Recalled, query: TypedQuery, position: int, unknown: Collection[str], keep: int
    ) -> list[NodeHit]:
        hits = [node_hit(hit, query, position, self._scoring, unknown) for hit in recalled.hits]
        return sorted(hits, key=rank_key)[:keep]


def _degradations(recalled: Sequence[Recalled]) -> tuple[Degradation, ...]:
    reasons = {f"RET-5001: {part} recall failed: {why}" for r in recalled for part, why in r.failed.items()}
    reasons |= {f"{part} recall is incomplete: {why}" for r in recalled for part, why in r.partial.items()}
    return tuple(Degradation(STAGE, reason, 0) for reason in sorted(reasons))
