"""Steps that the chain and shorter walks through its stages share: a stage, and what answers when it fails."""

from collections.abc import Sequence
from typing import Any

from contracts.errors import RecallFailed, RecheckFailed
from contracts.stages import (
    Assembly,
    ExpandRequest,
    ExpandResult,
    RecheckRequest,
    RecheckResult,
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


async def recheck(run: Run, stage: Stage[RecheckRequest, RecheckResult], request: RecheckRequest) -> RecheckResult:
    """What passed; when nothing could be checked, all but what the caller may not see (RET-5002)."""

    def permitted() -> RecheckResult:
        return RecheckResult([[hit for hit in found if run.ctx.may_see(hit.owner_space)] for found in request.hits])

    return await run.stage("rechecker", stage, request, permitted, failed=RecheckFailed, count=candidates)


def candidates(part: Any) -> int:
    """Candidates in a stage's input or output, for the metrics; of the seed search's input, the queries."""
    if isinstance(part, Assembly):
        return len(part.blocks)
    if isinstance(part, SeedRequest):
        return len(part.queries)
    return sum(map(len, part.hits))


def _degrade(run: Run, parts: Sequence[Degradation]) -> None:
    for part in parts:
        run.degrade(part.stage, part.reason, part.elapsed_ms / 1000)
