"""Rechecker: holds each candidate to the query's exact conditions and to the source of truth; it only drops (C13)."""

import time

from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecheckFailed
from contracts.hits import NodeHit
from contracts.ports import NodeMeta, SearchIndex
from contracts.query import TypedQuery
from contracts.stages import Drop, RecheckRequest, RecheckResult
from contracts.uri import is_under


class RecheckerConfig(BaseModel):
    """What is checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    candidates: int = Field(
        100, ge=1, le=1000, description="Best candidates checked a typed query; the rest are dropped unchecked."
    )


class Rechecker:
    """The rechecker stage."""

    def __init__(self, index: SearchIndex, config: RecheckerConfig) -> None:
        self._index = index
        self._config = config

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: RecheckRequest) -> RecheckResult:
        """Check the best candidates of each typed query; order and scores stay as they are.

        Raises:
            RecheckFailed: The source of truth could not be asked (RET-5002).
        """
        candidates = [hits[: self._config.candidates] for hits in request.hits]
        uris = sorted({hit.uri for hits in candidates for hit in hits})
        try:
            live = await self._index.meta(ctx.account_id, uris) if uris else {}
        except Exception as error:
            raise RecheckFailed("The source of truth could not be asked.", stage="rechecker") from error
        kept: list[list[NodeHit]] = []
        drops: list[Drop] = []
        for position, (query, hits) in enumerate(zip(request.queries, candidates, strict=True)):
            survivors = []
            for hit in hits:
                reason = exclude_reason(ctx, query, hit, live.get(hit.uri))
                if reason:
                    drops.append(Drop(hit.uri, position, reason))
                else:
                    survivors.append(hit)
            kept.append(survivors)
        return RecheckResult(kept, tuple(drops))


def exclude_reason(ctx: RequestContext, query: TypedQuery, hit: NodeHit, live: NodeMeta | None) -> str:
    """Why a candidate is dropped, as a short code without any of its or the query's text; empty when it stays.

    Args:
        ctx: Who asks.
        query: Its scope, filters and terms.
        hit: The candidate.
        live: What the source of truth says of it now; ``None`` when it is gone.
    """
    if live is None:
        return "gone"
    if not ctx.may_see(live.owner_space):
        return "forbidden"
    if live.status != "active":
        return "inactive"
    if 0 < live.expires_at <= time.time() * 1000:
        return "expired"
    if live.context_type != query.context_type:
        return "context_type"
    if query.filters.owner_space and live.owner_space != query.filters.owner_space:
        return "owner_space"
    if query.target_uri and not is_under(hit.uri, query.target_uri):
        return "target_uri"
    return _term_reason(query, f"{hit.name}\n{live.abstract}".lower())


def _term_reason(query: TypedQuery, text: str) -> str:
    if any(term.lower() not in text for term in query.hints.must_have_terms):
        return "must_have_terms"
    if any(term.lower() in text for term in query.hints.exclude_terms):
        return "exclude_terms"
    return ""
