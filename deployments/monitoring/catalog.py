"""All metrics of the product, from what they say of themselves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployments.corpora.observer import BacklogMetrics, CorpusMetrics, IngestProgress
from deployments.gateway.observer import GatewayMetrics
from deployments.knowledge_base.observer import BehindMetrics, Observed
from deployments.metrics import (
    ChainMetrics,
    Description,
    IndexMetrics,
    Metric,
    ModelMetrics,
    RequestMetrics,
    RoutedMetrics,
    StageMetrics,
    WireMetrics,
)

# Observers take names of stages or corpora, and a stage: for what their metrics are, any will do.
_ANY = ""


def catalog() -> Mapping[str, Sequence[Description]]:
    """Every metric, by the part of the product that has it."""
    parts: Mapping[str, Sequence[object]] = {
        "Requests": [RequestMetrics()],
        "Stages": [
            ChainMetrics(),
            StageMetrics(_ANY),
            WireMetrics(_ANY),
            RoutedMetrics(_ANY),
            ModelMetrics(_ANY),
            IndexMetrics(_ANY),
        ],
        "Corpora": [CorpusMetrics(), IngestProgress(_ANY), BacklogMetrics(_ANY)],
        "Memory gateway": [GatewayMetrics()],
        "Knowledge base": [Observed(_no_search), BehindMetrics()],
    }
    return {part: list(_descriptions(observers)) for part, observers in parts.items()}


async def _no_search(*_: Any) -> Any:
    raise NotImplementedError


def _descriptions(observers: Sequence[object]) -> Iterator[Description]:
    for observer in observers:
        for held in vars(observer).values():
            metrics = held.values() if isinstance(held, Mapping) else [held]
            yield from (metric.description for metric in metrics if isinstance(metric, Metric))
