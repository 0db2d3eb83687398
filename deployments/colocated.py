"""Stages inside the ingress: a hop less each, and one index for all of them with what it holds in memory."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from contracts.errors import StageError
from contracts.ports import Embedder, ReadableIndex
from contracts.records import ModelRef
from contracts.stages import Stage
from deployments.backends import open_reader
from deployments.bounded import Bounded
from deployments.settings import Settings
from deployments.stage_settings import INDEXED
from deployments.stages.embedder import open_embedder
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
        embedder: The model, where the embedder is among them.
    """

    def __init__(
        self, stages: Mapping[str, Stage[Any, Any]], index: ReadableIndex | None, embedder: Embedder | None
    ) -> None:
        self.stages = stages
        self._index = index
        self._embedder = embedder
        self._watches: list[IndexWatch] = []

    @classmethod
    async def open(cls, settings: Settings) -> "Colocated":
        """Make them, and ask the index once.

        Raises:
            ConfigError: The index can't be opened, or the model not be loaded.
        """
        on_index = [name for name in settings.stages.colocate if name in INDEXED]
        index = await open_reader(settings.data_dir, settings.index) if on_index else None
        stages: dict[str, Stage[Any, Any]] = {
            name: Bounded(name, _stage(name, settings, index))
            for name in settings.stages.colocate
            if name != "embedder"
        }
        embedder = None
        if "embedder" in settings.stages.colocate:
            embedder, batched = await open_embedder(settings.embedder)
            batched.set_limit(settings.stages.embedder.batch.limit)
            stages["embedder"] = Bounded("embedder", batched)
        made = cls(stages, index, embedder)
        if index is not None:
            made._watches = [IndexWatch(name, partial(_ASKED.get(name, ask_meta), index)) for name in on_index]
            await asyncio.gather(*(watch.start() for watch in made._watches))
        return made

    async def describe(self, seconds: float) -> dict[str, ModelRef | BaseException | None]:
        """Of seed search and embedder, where they are here, what ``RemoteStage.describe`` says, or why not.

        Args:
            seconds: How long it may take.
        """
        said: dict[str, ModelRef | BaseException | None] = {}
        if self._embedder is not None:
            said["embedder"] = self._embedder.model
        if "seed_search" in self.stages and self._index is not None:
            try:
                async with asyncio.timeout(seconds):
                    said["seed_search"] = await self._index.model()
            except (StageError, TimeoutError) as error:
                said["seed_search"] = error
        return said


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
