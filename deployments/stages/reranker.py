"""The reranker's deployment: several requests side by side, their pairs scored together."""

import asyncio
from typing import Any

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.ports import PairScorer
from contracts.stages import RerankRequest, RerankResult, Stage
from deployments.batching import HANGING_S, SharedScorer, check_batch
from deployments.metrics import ModelMetrics
from deployments.stages.base import StageReplica
from models.config import CrossEncoderConfig
from models.load import load_pair_scorer
from stages.reranker import Reranker, RerankerConfig


class RerankerReplica(StageReplica[RerankRequest, RerankResult]):
    """The reranker."""

    name = "reranker"
    request_type = RerankRequest

    async def open(
        self, config: RerankerConfig, model: CrossEncoderConfig, side_by_side: int
    ) -> Stage[RerankRequest, RerankResult]:
        """Load the model, where one is wanted; it scores once in doing so."""
        self._scorer: SharedScorer | None = None
        if config.kind == "none":
            return Reranker(config)
        scorer = await asyncio.to_thread(load_pair_scorer, model)
        self._scorer = SharedScorer(scorer, 1, HANGING_S, ModelMetrics(self.name).queued)
        return SideBySide(config, self._scorer, side_by_side)

    def reconfigure(self, batch: dict[str, Any]) -> None:
        """Take the pairs a batch: at the start, and a new number later without a restart."""
        if self._scorer:
            self._scorer.batcher.limit = batch["limit"]

    async def check_health(self) -> None:
        """Unhealthy when a batch hangs."""
        if self._scorer:
            check_batch(self._scorer.batcher.busy_seconds())


class SideBySide:
    """Rerankers on one scorer, each taking one request at a time; a stage itself.

    Args:
        config: Of each.
        scorer: Scores the pairs of all together.
        count: How many.
    """

    def __init__(self, config: RerankerConfig, scorer: PairScorer, count: int) -> None:
        self._lanes = [Reranker(config, scorer) for _ in range(count)]
        self._ongoing = [0] * count

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: RerankRequest) -> RerankResult:
        """Rerank where there is the least to do."""
        lane = self._ongoing.index(min(self._ongoing))
        self._ongoing[lane] += 1
        try:
            return await self._lanes[lane](ctx, deadline, request)
        finally:
            self._ongoing[lane] -= 1
