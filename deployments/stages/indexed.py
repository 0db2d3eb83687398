"""What the deployments of the stages on the index have in common."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
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


async def ask_meta(index: ReadableIndex) -> None:
    """Ask an index for the metadata of nothing."""
    await index.meta(_NOBODY, [f"strata://{_NOBODY}"])


async def ask_recall(index: ReadableIndex) -> None:
    """Recall nothing, in both languages, so that the text analysis has its dictionaries."""
    model = await index.model()
    vector = np.full(model.dimensions, model.dimensions**-0.5, dtype=np.float32) if model else None
    await index.recall([RecallQuery("warm up 预热", vector, Eq("account_id", _NOBODY), 1)])


class IndexWatch:
    """Looks now and then whether an index is well, for as long as the event loop runs.

    Args:
        stage: The stage on it.
        ask: Asks it for nothing, as the stage asks it.
    """

    def __init__(self, stage: str, ask: Callable[[], Awaitable[None]]) -> None:
        self._metrics = IndexMetrics(stage)
        self._ask = ask
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask the index once, and go on looking; one that is down for a moment is no error."""
        await self._look(None)
        self._looking = asyncio.create_task(self._keep_looking())

    def stop(self) -> None:
        """Look no more."""
        if self._looking:
            self._looking.cancel()

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
                await self._ask()
            well = True
        except StageError:
            pass
        finally:
            self._metrics.answered(well)


class IndexedReplica(StageReplica[In, Out]):
    """A stage on the index."""

    index: ReadableIndex

    async def open(self, data_dir: Path, settings: IndexSettings, *args: Any) -> Stage[In, Out]:
        """Open the index and ask it once, then build the stage on it."""
        self.index = await open_reader(data_dir, settings)
        # An index that is down for a moment is a degraded answer later, not a replica that can't start.
        self.watch = IndexWatch(self.name, self.warm_up)
        await self.watch.start()
        return self.build(*args)

    async def warm_up(self) -> None:
        """Ask for the metadata of nothing."""
        await ask_meta(self.index)

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Stage[In, Out]:
        """Build the stage on the open index."""


class RecallReplica(IndexedReplica[In, Out]):
    """A stage that recalls."""

    async def warm_up(self) -> None:
        """Recall nothing."""
        await ask_recall(self.index)
