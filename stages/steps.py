"""Steps that the chain and shorter walks through its stages share: a stage, and what answers when it fails."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from contracts.errors import RecallFailed, RecheckFailed
from contracts.filters import Filter
from contracts.hits import NodeHit
from contracts.query import TypedQuery
from contracts.stages import (
    Assembly,
    Drop,
    ExpandRequest,
    ExpandResult,
    RecheckRequest,
    RecheckResult,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
    Stage,
)
from contracts.trace import Degradation
from stages.run import Run


async def recall(run: Run, stage: Stage[SeedRequest, SeedResult], request: SeedRequest) -> SeedResult | None:
    """The seeds; ``None`` when nothing could be searched, as the run's degradations then say (RET-5001)."""
    search: Stage[SeedRequest, SeedResult | None] = stage
    seeds = await run.stage("seed_search", search, request, lambda: None, failed=RecallFailed, count=candidates)
    if seeds:
        _degrade(run, seeds.degraded)
    return seeds


async def expand(run: Run, stage: Stage[ExpandRequest, ExpandResult], request: ExpandRequest) -> ExpandResult:
    """The seeds and what was reached from them; the seeds alone when that failed."""
    expanded = await run.stage("expander", stage, request, lambda: ExpandResult(request.hits), count=candidates)
    _degrade(run, expanded.degraded)
    return expanded


class Rechecked(NamedTuple):
    """The hits that passed, and what was dropped."""

    hits: list[list[NodeHit]]
    drops: tuple[Drop, ...]


async def recheck(
    run: Run,
    stage: Stage[RecheckRequest, RecheckResult],
    queries: tuple[TypedQuery, ...],
    caller: Filter | None,
    hits: Sequence[Sequence[NodeHit]],
) -> Rechecked:
    """What passed; when nothing could be checked, all but what the caller may not see (RET-5002)."""

    def permitted() -> RecheckResult:
        may_see = run.ctx.may_see
        return RecheckResult([[i for i, hit in enumerate(found) if may_see(hit.owner_space)] for found in hits])

    request = RecheckRequest.of(queries, caller, hits)
    result = await run.stage("rechecker", stage, request, permitted, failed=RecheckFailed, count=candidates)
    return Rechecked(result.of(hits), result.drops)


async def rerank(run: Run, stage: Stage[RerankRequest, RerankResult], request: RerankRequest) -> list[list[NodeHit]]:
    """The hits in their new order; in the one before when that failed."""
    result = await run.stage("reranker", stage, request, lambda: RerankResult.as_before(request.hits), count=candidates)
    if 0 < result.scored < result.total:
        run.degrade("reranker", f"RET-5041: scored {result.scored} of {result.total} candidates in time")
    run.event("reranker", "reranked", scored=result.scored, total=result.total)
    return result.of(request.hits)


def candidates(part: Any) -> int:
    """Candidates in a stage's input or output, for the metrics; of the seed search's input, the queries."""
    match part:
        case Assembly():
            return len(part.blocks)
        case SeedRequest():
            return len(part.queries)
        case RecheckResult():
            return sum(map(len, part.kept))
        case RerankResult():
            return sum(map(len, part.ranked))
    return sum(map(len, part.hits))


def _degrade(run: Run, parts: Sequence[Degradation]) -> None:
    for part in parts:
        run.degrade(part.stage, part.reason, part.elapsed_ms / 1000)
