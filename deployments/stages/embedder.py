"""The embedder's deployment: one model, batches over requests."""

import asyncio
from typing import Any

from contracts.ports import Embedder
from contracts.records import ModelRef
from contracts.stages import EmbedRequest, QueryVectors
from deployments.batching import BatchedEmbedder, check_batch
from deployments.metrics import ModelMetrics
from deployments.stages.base import StageReplica
from models.config import EmbedderModelConfig
from models.load import load_embedder
from stages.embedder import EmbedderStage


async def open_embedder(config: EmbedderModelConfig) -> tuple[Embedder, BatchedEmbedder]:
    """Load a model, which embeds once in doing so: the model, and the stage that it makes for many requests at once.

    Raises:
        ConfigError: The model can't be found or loaded.
    """
    metrics = ModelMetrics(EmbedderReplica.name)
    embedder = await asyncio.to_thread(load_embedder, config, cached=metrics.cached)
    return embedder, BatchedEmbedder(EmbedderStage(embedder), 1, metrics.queued)


class EmbedderReplica(StageReplica[EmbedRequest, QueryVectors]):
    """The embedder."""

    name = "embedder"
    request_type = EmbedRequest

    async def open(self, config: EmbedderModelConfig) -> BatchedEmbedder:
        """Load the model."""
        self._embedder, self._batched = await open_embedder(config)
        return self._batched

    def reconfigure(self, batch: dict[str, Any]) -> None:
        """Take the texts a batch: at the start, and a new number later without a restart."""
        self._batched.set_limit(batch["limit"])

    async def describe(self) -> ModelRef | None:
        """The model of the query vectors."""
        return self._embedder.model

    async def check_health(self) -> None:
        """Unhealthy when a batch hangs."""
        check_batch(self._batched.busy_seconds())
