"""The deployments of the knowledge base, and how an application in the cluster asks it (K7)."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, ClassVar

from ray import serve
from ray.serve.deployment import Application
from ray.serve.handle import DeploymentHandle

from contracts.errors import StrataError
from contracts.stages import EmbedRequest, QueryVectors, SeedRequest, SeedResult, Stage
from corpora.knowledge_base.outbox import behind
from corpora.knowledge_base.search import NAME
from corpora.knowledge_base.service import Searcher
from corpora.knowledge_base.types import SearchOutcome, SearchRequest
from deployments.backends import open_database
from deployments.corpora.embedder import StageEmbedder
from deployments.knowledge_base.observer import BehindMetrics, Observed
from deployments.knowledge_base.opening import SEEDS, location, make_search, make_worker
from deployments.settings import Settings
from deployments.stage_settings import DeploymentSettings
from deployments.stages.base import StageReplica
from deployments.stages.embedder import EmbedderReplica
from deployments.stages.seed_search import SeedSearchReplica
from deployments.transport import RemoteStage

_RETRY_S = 2.0
# How often it is counted how far the index is behind.
_COUNT_S = 5.0


class KbEmbedderReplica(EmbedderReplica):
    """The embedder of the knowledge base, where it has a model of its own."""

    name = "kb_embedder"


class KbSeedSearchReplica(SeedSearchReplica):
    """The seed search on the index of the knowledge base."""

    name = "kb_seed_search"


class KnowledgeBaseReplica(StageReplica[SearchRequest, SearchOutcome]):
    """The search, as a stage that other applications call; see :func:`knowledge_base`."""

    name = NAME
    request_type = SearchRequest

    async def open(
        self,
        settings: Settings,
        embedder: DeploymentHandle[Any],
        seed_search: DeploymentHandle[Any],
        index: DeploymentHandle[Any],
    ) -> Stage[SearchRequest, SearchOutcome]:
        """Open the database, and call each stage once: no search shall wait for the first connection.

        ``index`` is not called: it is here so that Serve runs that deployment too.
        """
        embedding = RemoteStage[EmbedRequest, QueryVectors](embedder, QueryVectors)
        seeds = RemoteStage[SeedRequest, SeedResult](seed_search, SeedResult)
        for stage in (embedding, seeds):
            with suppress(StrataError):
                await stage.describe(_RETRY_S)
        return Observed(make_search(settings, await open_database(settings), embedding, seeds))


class KbIndexReplica:
    """Keeps the index up with the database for as long as it lives.

    Args:
        settings: All of them.
        embedder: That of the knowledge base.
    """

    name: ClassVar[str] = "kb_index"

    async def __init__(self, settings: Settings, embedder: DeploymentHandle[Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        serving = settings.knowledge_base.serving
        self._database = await open_database(settings)
        stage = RemoteStage[EmbedRequest, QueryVectors](embedder, QueryVectors)
        self._embedder = StageEmbedder(stage, serving.embed_texts, serving.embed_timeout_s)
        self._settings = settings
        self._stopping = asyncio.Event()
        self._metrics = BehindMetrics()
        self._running = asyncio.create_task(self._run())
        self._counting = asyncio.create_task(self._count())

    async def __del__(self) -> None:
        """Awaited by Serve before the replica goes."""
        self._counting.cancel()
        self._stopping.set()
        await asyncio.wait([self._running, self._counting])
        await self._database.close()

    async def check_health(self) -> None:
        """Serve replaces a replica whose worker has ended."""
        if self._running.done():
            raise RuntimeError("The worker has ended.")

    async def _run(self) -> None:
        # The embedder says with its first vectors of which model they are.
        while not await self._embedder_is_up():
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    await self._stopping.wait()
            if self._stopping.is_set():
                return
        worker = make_worker(self._settings, self._database, self._embedder)
        working = asyncio.create_task(worker.run())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await working

    async def _embedder_is_up(self) -> bool:
        try:
            await self._embedder.embed(["warm up"], "passage")
        except StrataError:
            return False
        return True

    async def _count(self) -> None:
        while True:
            with suppress(StrataError):
                self._metrics.show(await behind(self._database))
            await asyncio.sleep(_COUNT_S)


def applications(settings: Settings, embedder: Application) -> Application | None:
    """The knowledge base as a part of the graph, where it is switched on: its deployment, over all that it needs.

    Args:
        settings: All of them.
        embedder: The graph's, which serves both where they want the same model.
    """
    config, serving, wire = settings.knowledge_base, settings.knowledge_base.serving, settings.ray.wire
    if not config.enabled:
        return None
    if config.embedder.model_dump() != settings.embedder.model_dump():
        batch = {"user_config": serving.batch.model_dump()}
        own = _deployment(KbEmbedderReplica, serving.embedder, batch)
        embedder = own.bind(config.embedder, places=serving.embedder.places(wire))
    seeds = _deployment(KbSeedSearchReplica, serving.seed_search).bind(
        *location(settings), SEEDS, settings.scoring, places=serving.seed_search.places(wire)
    )
    index = _deployment(KbIndexReplica, serving.index).bind(settings, embedder)
    places = serving.deployment.places(wire)
    return _deployment(KnowledgeBaseReplica, serving.deployment).bind(settings, embedder, seeds, index, places=places)


def _deployment(
    kind: type[Any], deployment: DeploymentSettings, more: Mapping[str, Any] = MappingProxyType({})
) -> serve.Deployment:
    options = {**deployment.options(), **more}
    return serve.deployment(kind).options(name=kind.name, max_constructor_retry_count=2, **options)


def knowledge_base(handle: DeploymentHandle[Any], timeout_ms: int) -> Searcher:
    """The knowledge base behind its Serve handle, for another application in the cluster (K7).

    ::

        kb = knowledge_base(serve.get_deployment_handle("knowledge_base", "strata"), timeout_ms=2000)
        outcome = await kb.search("what to wear", RequestContext("acme"), occasion="party")

    Args:
        handle: Of the deployment ``knowledge_base``. Construct it in the event loop that will call.
        timeout_ms: Of a whole search.
    """
    return Searcher(RemoteStage[SearchRequest, SearchOutcome](handle, SearchOutcome), timeout_ms)
