"""The path ``rag``: a search of the graph, pinned to one corpus."""

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.requests import PlannerHintsBody, SearchMemoryRequest
from corpora.rag.calibration import Scale
from corpora.rag.types import CorpusQuery, Ranking
from stages.chain import Chain


class GraphRetriever:
    """A ``Retriever`` over the chain.

    Args:
        chain: Searches.
        scale: Measures relevance.
        rerank_ms: Longest wait for the reranker.
    """

    def __init__(self, chain: Chain, scale: Scale, rerank_ms: int) -> None:
        self._chain = chain
        self._scale = scale
        self._rerank_ms = rerank_ms

    async def retrieve(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery) -> Ranking:
        """See ``Retriever``.

        Raises:
            RecallFailed: Nothing could be searched.
        """
        request = SearchMemoryRequest(
            query=query.text,
            top_k=query.candidates,
            score_threshold=0.0,
            score_gte=True,
            planner_hints=PlannerHintsBody(context_types=[query.scope.context_type]),
            timeout_ms=max(1, round(deadline.left() * 1000)),
        )
        answer = await self._chain.search(ctx, request, query.condition, rerank=query.rerank, rerank_ms=self._rerank_ms)
        if answer.retryable:
            reason = next(
                (part.reason for part in answer.degraded if part.stage == "seed_search"), "no recall answered"
            )
            raise RecallFailed(reason.removeprefix(f"{RecallFailed.code}: "), stage="seed_search")
        return self._scale.ranking(answer.hits, query.threshold, answer.degraded)
