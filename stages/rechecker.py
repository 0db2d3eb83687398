"""Rechecker: holds each candidate to the query's exact conditions and to the source of truth; it only drops (C13)."""

import time
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecheckFailed
from contracts.filters import Filter, predicate
from contracts.ports import NodeMeta, SearchIndex
from contracts.query import TypedQuery
from contracts.scope import search_conditions
from contracts.stages import Candidate, Drop, RecheckRequest, RecheckResult


class RecheckerConfig(BaseModel):
    """What is checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    candidates: int = Field(
        100,
        ge=1,
        le=1000,
        description="Best candidates checked at a time a typed query, more only while fewer than asked for pass; the "
        "rest are dropped unchecked.",
    )


class Rechecker:
    """The rechecker stage."""

    def __init__(self, index: SearchIndex, config: RecheckerConfig) -> None:
        self._index = index
        self._config = config

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: RecheckRequest) -> RecheckResult:
        """Check candidates, best first, until each typed query has its ``top_k`` or none is left.

        Raises:
            RecheckFailed: The source of truth could not be asked (RET-5002).
        """
        checks = [_Check(ctx, query, request.caller) for query in request.queries]
        kept: list[list[int]] = [[] for _ in checks]
        drops: list[Drop] = []
        spent = 0.0
        for start in range(0, max(map(len, request.hits), default=0), self._config.candidates):
            # Rather fewer that are checked than a check that is cut off.
            if start and deadline.left() < spent:
                break
            started = time.perf_counter()
            wanted = [
                hits[start : start + self._config.candidates] if start == 0 or len(found) < query.top_k else []
                for query, hits, found in zip(request.queries, request.hits, kept, strict=True)
            ]
            live = await self._live(ctx, {hit.uri for hits in wanted for hit in hits})
            for position, hits in enumerate(wanted):
                for place, hit in enumerate(hits, start):
                    if reason := checks[position].reason(hit, live.get(hit.uri)):
                        drops.append(Drop(hit.uri, position, reason))
                    else:
                        kept[position].append(place)
            spent = time.perf_counter() - started
        return RecheckResult(kept, tuple(drops))

    async def _live(self, ctx: RequestContext, uris: set[str]) -> Mapping[str, NodeMeta]:
        try:
            return await self._index.meta(ctx.account_id, sorted(uris)) if uris else {}
        except Exception as error:
            raise RecheckFailed("The source of truth could not be asked.", stage="rechecker") from error


class _Check:
    """What the candidates of one typed query are held to."""

    def __init__(self, ctx: RequestContext, query: TypedQuery, caller: Filter | None) -> None:
        conditions = search_conditions(ctx, query, caller)
        self._conditions = {reason: predicate(condition) for reason, condition in conditions.items()}
        self._hints = query.hints
        self._terms = bool(self._hints.must_have_terms or self._hints.exclude_terms)

    def reason(self, hit: Candidate, live: NodeMeta | None) -> str:
        """Why a candidate is dropped, as a short code without any of its or the query's text; empty when it stays.

        Args:
            hit: The candidate.
            live: What the source of truth says of it now; ``None`` when it is gone.
        """
        if live is None:
            return "gone"
        for reason, holds in self._conditions.items():
            if not holds(live.get):
                return reason
        if not self._terms:
            return ""
        text = f"{hit.name}\n{live.abstract}".lower()
        if any(term.lower() not in text for term in self._hints.must_have_terms):
            return "must_have_terms"
        if any(term.lower() in text for term in self._hints.exclude_terms):
            return "exclude_terms"
        return ""
