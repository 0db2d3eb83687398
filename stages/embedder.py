"""Embedder stage: the vectors of all typed queries of a request in one go."""

import numpy as np

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageFailed, StageTimeout, StrataError
from contracts.ports import Embedded, Embedder
from contracts.stages import EmbedRequest, QueryVectors

STAGE = "embedder"


class EmbedderStage:
    """Embeds each distinct text once.

    Args:
        embedder: The model.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        """Embed ``request.texts``; one row each, in order, and the positions of those that were cut.

        Raises:
            StageTimeout: The deadline has passed before the work began.
            StageFailed: The model failed.
        """
        if deadline.expired():
            raise StageTimeout("No time was left to embed.", stage=STAGE)
        texts = list(dict.fromkeys(request.texts))
        try:
            embedded = await self._embedder.embed(texts, request.role)
        except StrataError:
            raise
        except Exception as error:  # Whatever a model raises, the chain goes on without vectors.
            raise StageFailed(f"The model failed ({type(error).__name__}).", stage=STAGE) from error
        model = self._embedder.model
        _check(embedded, (len(texts), model.dimensions))
        rows = [texts.index(text) for text in request.texts]
        cut = tuple(i for i, row in enumerate(rows) if row in embedded.truncated)
        return QueryVectors.pack(model, embedded.vectors[rows], cut)


def _check(embedded: Embedded, shape: tuple[int, int]) -> None:
    if embedded.vectors.shape != shape or not np.isfinite(embedded.vectors).all():
        raise StageFailed("The model returned something other than a vector a text.", stage=STAGE)
