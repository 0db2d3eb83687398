"""The path ``keyword``: the old way, which stays (R8). No vectors, tree or reranker: words, and what may be seen."""

from typing import Any

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecallFailed, RecheckFailed
from contracts.query import QueryFilters, TypedQuery
from contracts.stages import RecheckRequest, RecheckResult, SeedRequest, SeedResult
from corpora.rag.calibration import Scale
from corpora.rag.types import CorpusQuery, Ranking
from stages.assembler import best_by_uri, block
from stages.chain import Chain


class KeywordRetriever:
    """A ``Retriever`` over two stages of the chain, behind the same circuit breakers.

    Args:
        chain: Whose stages these are.
        scale: Measures relevance.
    """

    def __init__(self, chain: Chain, scale: Scale) -> None:
        self._chain = chain
        self._scale = scale

    async def retrieve(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery) -> Ranking:
        """See ``Retriever``.

        Raises:
            RecallFailed: Nothing could be searched.
        """
        run, stages = self._chain.run(ctx, deadline), self._chain.stages
        typed = TypedQuery(
            query.text, query.scope.context_type, top_k=query.candidates, filters=QueryFilters(ctx.account_id)
        )
        nothing = SeedResult([[]], more=False)
        # Parents are found too, and are no hits.
        request = SeedRequest((typed,), None, query.condition, 2 * query.candidates)
        found = await run.stage(
            "seed_search", stages.seed_search, request, lambda: nothing, failed=RecallFailed, count=_count
        )
        if found is nothing:
            raise RecallFailed("The keyword search did not answer.", stage="seed_search")
        for part in found.degraded:
            run.degrade(part.stage, part.reason, part.elapsed_ms / 1000)
        checked = await run.stage(
            "rechecker",
            stages.rechecker,
            RecheckRequest((typed,), query.condition, found.hits),
            lambda: RecheckResult([[hit for hit in found.hits[0] if ctx.may_see(hit.owner_space)]]),
            failed=RecheckFailed,
            count=_count,
        )
        blocks = map(block, best_by_uri(checked.hits[0]))
        ranking = self._scale.ranking(blocks, query.threshold, run.degraded)
        return Ranking(ranking.hits[: query.candidates], ranking.below_threshold, ranking.degraded)


def _count(part: Any) -> int:
    """Candidates in a stage's input or output, for the metrics."""
    return len(part.queries) if isinstance(part, SeedRequest) else sum(map(len, part.hits))
