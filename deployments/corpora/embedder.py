"""The graph's embedder, as an ingest uses it."""

from collections.abc import Sequence

import numpy as np

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageFailed
from contracts.ports import Embedded, TextRole, Vectors
from contracts.records import ModelRef
from contracts.stages import EmbedRequest, QueryVectors, Stage


class StageEmbedder:
    """An ``Embedder`` over the embedder stage. Few texts a call, one call at a time, so that no query waits long.

    Args:
        stage: The embedder.
        texts: A call.
        seconds: Longest wait for a call.
    """

    def __init__(self, stage: Stage[EmbedRequest, QueryVectors], texts: int, seconds: float) -> None:
        self._stage = stage
        self._texts = texts
        self._seconds = seconds
        self._model: ModelRef | None = None

    @property
    def model(self) -> ModelRef:
        """The model of the last vectors.

        Raises:
            StageFailed: There were none yet.
        """
        if self._model is None:
            raise StageFailed("Nothing was embedded yet.", stage="embedder")
        return self._model

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        """See ``contracts.ports.Embedder``.

        Raises:
            StageError: The stage failed, or its model changed half-way.
        """
        rows: list[Vectors] = []
        cut: list[int] = []
        models: set[ModelRef] = set()
        for start in range(0, len(texts), self._texts):
            request = EmbedRequest(tuple(texts[start : start + self._texts]), role)
            answer = await self._stage(RequestContext(""), Deadline.after(self._seconds), request)
            rows.append(answer.unpack())
            cut += [start + position for position in answer.truncated]
            models.add(answer.model)
        if len(models) > 1:
            raise StageFailed("The embedder's model changed.", stage="embedder")
        self._model = next(iter(models), self._model)
        return Embedded(np.concatenate(rows) if rows else np.zeros((0, self.model.dimensions), np.float32), tuple(cut))
