"""Seed search: dense and keyword recall side by side over L0 abstracts, fused on absolute scales (C11)."""

import asyncio
from collections.abc import Collection, Iterable, Sequence

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.filters import Filter, Under, all_of
from contracts.hits import NodeHit
from contracts.ports import OTHER_MODEL, Recalled, RecallQuery, SearchIndex
from contracts.query import TypedQuery
from contracts.scope import search_filter, system_filter
from contracts.stages import SeedRequest, SeedResult
from contracts.uri import depth_of
from stages.scoring import Scorer, ScoringConfig, degradations, missing, rank_key

STAGE = "seed_search"


class SeedSearchConfig(BaseModel):
    """How wide the first round is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: int = Field(
        100,
        ge=1,
        le=1000,
        description="Seeds kept a typed query, though never fewer than each recall is asked for (chain.limit): what "
        "later stages have to carry.",
    )


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
        queries = request.queries
        recalled = await self._recall(ctx, deadline, queries, request)
        absent = await self._absent_targets(ctx, deadline, request, recalled)
        if absent:
            queries = tuple(
                msgspec.structs.replace(q, target_uri=None) if q.target_uri in absent else q for q in queries
            )
            recalled = await self._recall(ctx, deadline, queries, request)
        vectors, keep = request.vectors, max(self._config.seeds, request.limit)
        return SeedResult(
            hits=[
                self._ranked(answer, query, position, missing(answer, vectors), keep)
                for position, (answer, query) in enumerate(zip(recalled, queries, strict=True))
            ],
            more=any(r.more for r in recalled),
            absent_targets=absent,
            keyword_only=vectors is None or any(r.failed.get("dense") == OTHER_MODEL for r in recalled),
            degraded=degradations(STAGE, recalled),
        )

    async def _recall(
        self, ctx: RequestContext, deadline: Deadline, queries: Sequence[TypedQuery], request: SeedRequest
    ) -> list[Recalled]:
        conditions = [search_filter(ctx, query, request.caller) for query in queries]
        return await self._index.recall(_asked(request, range(len(queries)), conditions, request.limit), deadline)

    async def _absent_targets(
        self, ctx: RequestContext, deadline: Deadline, request: SeedRequest, recalled: Sequence[Recalled]
    ) -> tuple[str, ...]:
        """Targets where there is nothing that the caller may see, whatever else was asked for.

        A space is always there for those who may see it, though it is no node.
        """
        asked = {q.target_uri: position for position, q in enumerate(request.queries) if q.target_uri}
        found = {q.target_uri for q, r in zip(request.queries, recalled, strict=True) if r.hits}
        doubtful = {uri: position for uri, position in asked.items() if uri not in found and depth_of(uri)}
        if not doubtful:
            return ()
        visible = system_filter(ctx)
        conditions = [all_of(visible, Under("uri", uri)) for uri in doubtful]
        nodes, below = await asyncio.gather(
            self._index.meta(ctx.account_id, list(doubtful)),
            self._index.recall(_asked(request, doubtful.values(), conditions, 1), deadline),
        )
        return tuple(
            uri
            for uri, answer in zip(doubtful, below, strict=True)
            if not answer.hits and (uri not in nodes or not nodes[uri].satisfies(visible))
        )

    def _ranked(
        self, recalled: Recalled, query: TypedQuery, position: int, unknown: Collection[str], keep: int
    ) -> list[NodeHit]:
        scored = Scorer(query, position, self._scoring, unknown)
        return sorted(map(scored, recalled.hits), key=rank_key)[:keep]


def _asked(
    request: SeedRequest, positions: Iterable[int], conditions: Iterable[Filter], limit: int
) -> list[RecallQuery]:
    """The typed queries at these positions, each under a condition."""
    vectors = request.vectors
    rows = vectors.unpack() if vectors else [None] * len(request.queries)
    model = vectors.model if vectors else None
    return [
        RecallQuery(request.queries[position].text, rows[position], condition, limit, model)
        for position, condition in zip(positions, conditions, strict=True)
    ]
