"""Reranker stage: reads query and abstract together, where the recall compared them from afar."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import ConfigError, StageFailed
from contracts.hits import NodeHit
from contracts.ports import PairScorer
from contracts.query import TypedQuery
from contracts.stages import Ranked, RerankRequest, RerankResult

STAGE = "reranker"
# A score of 0 would leave no room below it for the hits that were not scored.
_LEAST = 1e-6


class RerankerConfig(BaseModel):
    """How much is reranked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "cross_encoder"] = Field(
        "none", description="cross_encoder ranks better where its model knows the subject, and costs the most time."
    )
    top_n: int = Field(20, ge=1, description="Best hits of a request that are reranked; the time grows with them.")
    batch_pairs: int = Field(
        8, ge=1, description="Pairs scored between two looks at the clock; more are faster on GPUs and stop later."
    )
    weight: float = Field(
        1.0, gt=0, le=1, description="Share of the rerank score in the new score; the rest is the score before."
    )
    margin_ms: int = Field(5, ge=0, description="Time before the deadline kept for the answer's way back.")


class Reranker:
    """Reorders the hits of a request by a scorer's probabilities.

    The ``top_n`` best hits over all typed queries are scored in one flow, best first, so that when time runs out it is
    the least promising that go without. The new scores:

    - a scored hit gets ``weight * rerank + (1 - weight) * score``, with ``rerank`` in its breakdown;
    - any other hit gets ``score * f``, f the lowest new score of a scored hit: it keeps its place among its like, below
      all that were scored.

    So scores always fall along the list. The final score of C15 remains visible in the parts of the breakdown.

    Args:
        config: How much is reranked.
        scorer: Needed unless ``kind`` is none.

    Raises:
        ConfigError: A scorer is needed and missing.
    """

    def __init__(self, config: RerankerConfig, scorer: PairScorer | None = None) -> None:
        if config.kind != "none" and scorer is None:
            raise ConfigError("The reranker needs a model.", field="reranker.kind", remedy="Configure a cross-encoder.")
        self._config = config
        self._scorer = None if config.kind == "none" else scorer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reranker")

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: RerankRequest) -> RerankResult:
        """Rerank; returns in time with what is scored by then. With ``none`` the hits come back as they are.

        Raises:
            StageFailed: The model failed.
        """
        if self._scorer is None:
            return RerankResult.as_before(request.hits)
        places = [(q, i) for q, hits in enumerate(request.hits) for i in range(len(hits))]
        places = sorted(places, key=lambda place: -request.hits[place[0]][place[1]].score)[: self._config.top_n]
        pairs = [_pair(request.queries[q], request.hits[q][i]) for q, i in places]
        probabilities = await self._score(self._scorer, pairs, deadline)
        if not probabilities:
            return RerankResult.as_before(request.hits, len(pairs))
        reranked = dict(zip(places, probabilities, strict=False))
        return RerankResult(self._reorder(request.hits, reranked), len(reranked), len(pairs))

    async def _score(self, scorer: PairScorer, pairs: Sequence[tuple[str, str]], deadline: Deadline) -> list[float]:
        """Probabilities of the first pairs, as many as fit before the deadline."""
        loop = asyncio.get_running_loop()
        scores: list[float] = []
        slowest = 0.0
        for start in range(0, len(pairs), self._config.batch_pairs):
            left = deadline.left() - self._config.margin_ms / 1000
            # A batch that would not come back in time is not begun: it would keep the thread from the next request.
            if left <= slowest:
                break
            batch = pairs[start : start + self._config.batch_pairs]
            began = time.monotonic()
            scoring = loop.run_in_executor(self._thread, scorer.score, batch)
            try:
                await asyncio.wait([scoring], timeout=left)
            finally:
                # Nothing once it is done; and what the thread has not begun, it never will.
                scoring.cancel()
            if scoring.cancelled():
                break
            scores += _checked(scoring, len(batch))
            slowest = max(slowest, time.monotonic() - began)
        return scores

    def _reorder(self, hits: Sequence[Sequence[NodeHit]], reranked: dict[tuple[int, int], float]) -> list[list[Ranked]]:
        weight = self._config.weight
        new = {(q, i): weight * p + (1 - weight) * hits[q][i].score for (q, i), p in reranked.items()}
        floor = min(new.values())
        answer = []
        for q, found in enumerate(hits):
            scored = [Ranked(i, new[q, i], reranked[q, i]) for i in range(len(found)) if (q, i) in new]
            others = [Ranked(i, hit.score * floor) for i, hit in enumerate(found) if (q, i) not in new]
            answer.append(sorted(scored, key=lambda hit: -hit.score) + others)
        return answer


def _pair(query: TypedQuery, hit: NodeHit) -> tuple[str, str]:
    return query.text, f"{hit.name}\n{hit.abstract}"


def _checked(scoring: "asyncio.Future[np.ndarray[tuple[int], np.dtype[np.float32]]]", count: int) -> list[float]:
    try:
        scores = scoring.result()
    except Exception as error:  # Whatever a model raises, the order before it stands.
        raise StageFailed(f"The model failed ({type(error).__name__}).", stage=STAGE) from error
    if np.shape(scores) != (count,) or not np.isfinite(scores).all():
        raise StageFailed("The model returned something other than a score a pair.", stage=STAGE)
    return [float(score) for score in np.clip(scores, _LEAST, 1.0)]
