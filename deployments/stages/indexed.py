"""What the deployments of the stages on the index have in common."""

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
from deployments.settings import IndexSettings
from deployments.stages.base import StageReplica

In = TypeVar("In")
Out = TypeVar("Out")

_NOBODY = "warm-up"


class IndexedReplica(StageReplica[In, Out]):
    """A stage on the index."""

    index: ReadableIndex

    async def open(self, data_dir: Path, settings: IndexSettings, *args: Any) -> Stage[In, Out]:
        """Open the index and ask it once, then build the stage on it."""
        self.index = await open_reader(data_dir, settings)
        # An index that is down for a moment is a degraded answer later, not a replica that can't start.
        with suppress(StageError):
            await self.warm_up()
        return self.build(*args)

    async def warm_up(self) -> None:
        """Ask for the metadata of nothing."""
        await self.index.meta(_NOBODY, [f"strata://{_NOBODY}"])

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Stage[In, Out]:
        """Build the stage on the open index."""


class RecallReplica(IndexedReplica[In, Out]):
    """A stage that recalls."""

    async def warm_up(self) -> None:
        """Recall nothing, in both languages, so that the text analysis has its dictionaries."""
        model = await self.index.model()
        vector = np.full(model.dimensions, model.dimensions**-0.5, dtype=np.float32) if model else None
        await self.index.recall([RecallQuery("warm up 预热", vector, Eq("account_id", _NOBODY), 1)])
