"""What the deployments of the stages on the index have in common."""

import asyncio
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from contracts.errors import StageError
from contracts.filters import Eq
from contracts.ports import ReadableIndex, RecallQuery
from contracts.stages import Stage
from deployments.backends import open_reader
from deployments.metrics import IndexMetrics
from deployments.settings import IndexSettings
from deployments.stages.base import StageReplica

In = TypeVar("In")
Out = TypeVar("Out")

_NOBODY = "warm-up"
# How often it is looked whether the index is well, and how long that may take.
_LOOK_S, _LOOK_TIMEOUT_S = 10.0, 5.0


class IndexedReplica(StageReplica[In, Out]):
    """A stage on the index."""

    index: ReadableIndex

    async def open(self, data_dir: Path, settings: IndexSettings, *args: Any) -> Stage[In, Out]:
        """Open the index and ask it once, then build the stage on it."""
        self.index = await open_reader(data_dir, settings)
        self._metrics = IndexMetrics(self.name)
        # An index that is down for a moment is a degraded answer later, not a replica that can't start.
        await self._look(None)
        self._looking = asyncio.create_task(self._keep_looking())
        return self.build(*args)

    async def warm_up(self) -> None:
        """Ask for the metadata of nothing."""
        await self.index.meta(_NOBODY, [f"strata://{_NOBODY}"])

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Stage[In, Out]:
        """Build the stage on the open index."""

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            with suppress(Exception):  # Whatever it is, it is in the metric.
                await self._look(_LOOK_TIMEOUT_S)

    async def _look(self, seconds: float | None) -> None:
        """Ask the index, and note whether it answered."""
        well = False
        try:
            async with asyncio.timeout(seconds):
                await self.warm_up()
            well = True
        except StageError:
            pass
        finally:
            self._metrics.answered(well)


class RecallReplica(IndexedReplica[In, Out]):
    """A stage that recalls."""

    async def warm_up(self) -> None:
        """Recall nothing, in both languages, so that the text analysis has its dictionaries."""
        model = await self.index.model()
        vector = np.full(model.dimensions, model.dimensions**-0.5, dtype=np.float32) if model else None
        await self.index.recall([RecallQuery("warm up 预热", vector, Eq("account_id", _NOBODY), 1)])
