"""The path ``keyword``: the old way, which stays (R8). No vectors, tree or reranker: words, and what may be seen."""

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.query import QueryFilters, TypedQuery
from contracts.stages import SeedRequest
from corpora.rag.calibration import Scale
from corpora.rag.types import CorpusQuery, Ranking
from stages.assembler import best_by_uri, block
from stages.chain import Chain
from stages.steps import recall, recheck


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
        # Parents are found too, and are no hits.
        request = SeedRequest((typed,), None, query.condition, 2 * query.candidates)
        found = await recall(run, stages.seed_search, request)
        if found is None:
            raise RecallFailed("The keyword search did not answer.", stage="seed_search")
        checked = await recheck(run, stages.rechecker, (typed,), query.condition, found.hits)
        blocks = map(block, best_by_uri(checked.hits[0]))
        ranking = self._scale.ranking(blocks, query.threshold, run.degraded)
        return Ranking(ranking.hits[: query.candidates], ranking.below_threshold, ranking.degraded)
