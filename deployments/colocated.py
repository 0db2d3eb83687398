"""Light stages inside the ingress: a hop less each, and one index for all of them with what it holds in memory."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from contracts.errors import StageTimeout
from contracts.ports import ReadableIndex
from contracts.records import ModelRef
from contracts.stages import Stage
from deployments.backends import open_reader
from deployments.bounded import Bounded
from deployments.settings import Settings
from deployments.stage_settings import INDEXED
from deployments.stages.indexed import IndexWatch, ask_meta, ask_recall
from stages.assembler import Assembler
from stages.expander import Expander
from stages.planner import Planner
from stages.rechecker import Rechecker
from stages.reranker import Reranker
from stages.seed_search import SeedSearch


class Colocated:
    """The stages of ``stages.colocate``; made by :meth:`open`.

    Args:
        stages: By name.
        index: What those on the index have in common; ``None`` when there are none.
    """

    def __init__(self, stages: Mapping[str, Stage[Any, Any]], index: ReadableIndex | None) -> None:
        self.stages = stages
        self._index = index
        self._watches: list[IndexWatch] = []

    @classmethod
    async def open(cls, settings: Settings) -> "Colocated":
        """Make them, and ask the index once.

        Raises:
            ConfigError: The index can't be opened.
        """
        on_index = [name for name in settings.stages.colocate if name in INDEXED]
        index = await open_reader(settings.data_dir, settings.index) if on_index else None
        stages: dict[str, Stage[Any, Any]] = {
            name: Bounded(name, _stage(name, settings, index)) for name in settings.stages.colocate
        }
        made = cls(stages, index)
        if index is not None:
            made._watches = [IndexWatch(name, partial(_ASKED.get(name, ask_meta), index)) for name in on_index]
            await asyncio.gather(*(watch.start() for watch in made._watches))
        return made

    async def describe(self, seconds: float) -> ModelRef | None:
        """As ``RemoteStage.describe`` of the seed search: the model of the index's vectors; ``None`` while it is empty.

        Raises:
            StageError: The index did not answer.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._index.model() if self._index is not None else None
        except TimeoutError:
            raise StageTimeout("The index did not answer in time.", stage="seed_search") from None


_ASKED = {"seed_search": ask_recall, "expander": ask_recall}


def _stage(name: str, settings: Settings, index: Any) -> Stage[Any, Any]:
    stages, scoring = settings.stages, settings.scoring
    match name:
        case "planner":
            return Planner(stages.planner.config)
        case "seed_search":
            return SeedSearch(index, stages.seed_search.config, scoring)
        case "expander":
            return Expander(index, stages.expander.config, scoring)
        case "rechecker":
            return Rechecker(index, stages.rechecker.config)
        case "reranker":
            return Reranker(stages.reranker.config)
        case _:
            return Assembler(stages.assembler.config)
