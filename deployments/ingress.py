"""The ingress deployment: the HTTP API over a chain whose stages are Serve handles."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from contracts.errors import StageError, StrataError
from contracts.records import ModelRef
from contracts.stages import (
    Assembly,
    ExpandResult,
    Plan,
    QueryVectors,
    ReadResult,
    RecheckResult,
    RerankResult,
    SeedResult,
    Stage,
)
from deployments.api import Api, Extension
from deployments.backends import open_database
from deployments.colocated import Colocated
from deployments.corpora.api import CorporaRoutes
from deployments.corpora.events import Everyone
from deployments.corpora.observer import CorpusLog, CorpusMetrics
from deployments.corpora.opening import open_corpora
from deployments.corpora.replica import IngestReplica, Waker
from deployments.door import Door
from deployments.environment import Environment
from deployments.gateway.api import GatewayRoute
from deployments.gateway.observer import GatewayMetrics
from deployments.gateway.opening import open_gateway
from deployments.identity.authenticator import open_authenticator
from deployments.identity.caller import Caller
from deployments.identity.opening import open_keys
from deployments.knowledge_base.api import KnowledgeBaseRoute
from deployments.knowledge_base.replica import knowledge_base
from deployments.limits.admission import Admission
from deployments.limits.limiter import Limiter, unlimited
from deployments.limits.messages import LeaseReply, LeaseRequest
from deployments.logs import Noted
from deployments.metrics import ChainMetrics, RequestMetrics
from deployments.openapi import Readiness
from deployments.scaling import BY_WIRE
from deployments.service import Service
from deployments.settings import Settings
from deployments.transport import RemoteStage
from stages.chain import Chain, Stages

# How long a new ingress waits for the stages before it takes requests all the same.
_WARM_UP_S = 30.0

_RESULTS: Mapping[str, type[Any]] = {
    "planner": Plan,
    "embedder": QueryVectors,
    "seed_search": SeedResult,
    "expander": ExpandResult,
    "rechecker": RecheckResult,
    "reranker": RerankResult,
    "assembler": Assembly,
    "reader": ReadResult,
}


@serve.ingress()
class Ingress:
    """Takes HTTP requests and walks them through the graph.

    Args:
        settings: All of them.
        handles: By stage; a stage that is missing runs in here.
        ledger: Of the limits; without one nothing is limited.
        ingest: Writes the sources of corpora; without one there are no corpora.
        kb: The knowledge base; without one there is none.
    """

    _door: Door | None = None

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        settings: Settings,
        handles: dict[str, DeploymentHandle[Any]],
        ledger: DeploymentHandle[Any] | None = None,
        ingest: DeploymentHandle[Any] | None = None,
        kb: DeploymentHandle[Any] | None = None,
    ) -> None:
        self._settings = settings
        self._remote = {name: RemoteStage[Any, Any](handle, _RESULTS[name]) for name, handle in handles.items()}
        self._colocated = await Colocated.open(settings)
        stages: dict[str, Stage[Any, Any]] = {**self._remote, **self._colocated.stages}
        reader = stages.pop("reader")
        noted = {name: Noted(stages[name]) for name in ("seed_search", "rechecker", "assembler")}
        observer = ChainMetrics()
        chain = Chain(Stages(**{**stages, **noted}), settings.chain, observer, settings.stages.at_once)
        metrics = RequestMetrics()
        database = await open_database(settings)
        keys = await open_keys(settings, database)
        secret = Environment.read().secret("jwt_secret")
        service = Service(chain, reader, settings, observer)
        self._extensions: list[Extension] = []
        self._ingest = RemoteStage[Any, Any](ingest, type(None)) if ingest else None
        if self._ingest:
            told = Everyone(CorpusMetrics(), CorpusLog())
            corpora = await open_corpora(settings, database, service, told, Waker(self._ingest))
            self._extensions.append(CorporaRoutes(corpora, settings.corpora.serving.http))
        if settings.gateway.enabled:
            counted = GatewayMetrics()
            gateway = open_gateway(settings, database, service, counted.refused)
            self._extensions.append(GatewayRoute(gateway, counted, settings.gateway.address_header))
        if kb and settings.knowledge_base.http:
            searcher = knowledge_base(kb, settings.knowledge_base.timeout_ms)
            self._extensions.append(KnowledgeBaseRoute(searcher))
        self._api = Api(
            service,
            await open_authenticator(keys, settings.identity, secret, metrics.unauthenticated),
            await self._limits(ledger, metrics, observer) if ledger else unlimited,
            self._readiness,
            settings.server,
            metrics,
            Admission(settings.limits.admission, settings.server.max_concurrent, metrics.search_places),
        )
        # No search shall wait until replicas are found and connected to.
        await self._describe(_WARM_UP_S)
        await asyncio.gather(*(stage.connect() for stage in self._remote.values()))

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve once the constructor is done."""
        app, server = self._api.app(*self._extensions), self._settings.server
        if server.direct_port:
            self._door = Door(app, server.host, server.direct_port)
        return app

    async def __del__(self) -> None:
        """Called by Serve before it stops the replica."""
        if self._door:
            await self._door.close()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Asked by Serve; for ``deployments.scaling.by_calls``."""
        return {BY_WIRE: self._door.under_way if self._door else 0}

    async def check_health(self) -> None:
        """Serve replaces an ingress whose event loop does not get to this."""

    async def _limits(
        self, handle: DeploymentHandle[Any], metrics: RequestMetrics, observer: ChainMetrics
    ) -> Callable[[Caller], AbstractAsyncContextManager[None]]:
        ledger = RemoteStage[LeaseRequest, LeaseReply](handle, LeaseReply)
        with suppress(StageError):  # It may come up later.
            await ledger.describe(_WARM_UP_S)
        deployment = self._settings.server.deployment
        replicas = deployment.autoscaling.max_replicas if deployment.autoscaling else deployment.num_replicas
        alone = partial(observer.fallback, "limits")
        return Limiter(self._settings.limits, ledger, replicas, metrics.rate_limited, alone).admitted

    async def _readiness(self) -> Readiness:
        """Every stage of the graph answers, and the index holds vectors of the embedder's model.

        Searches are answered, and ingests acknowledged, while the ingest deployment is down.
        """
        described = await self._describe(self._settings.server.ready_timeout_ms / 1000)
        states = {
            name: "ok" if answer is None or isinstance(answer, ModelRef) else _wrong(answer)
            for name, answer in described.items()
        }
        searching = {name: state for name, state in states.items() if name != IngestReplica.name}
        reason = _reason(searching, described.get("seed_search"), described.get("embedder"))
        return Readiness(not reason, states, reason)

    async def _describe(self, seconds: float) -> dict[str, ModelRef | BaseException | None]:
        """What each remote stage, and seed search and embedder wherever they run, say of themselves, or why not."""
        asked = {name: stage.describe(seconds) for name, stage in self._remote.items()}
        if self._ingest:
            asked[IngestReplica.name] = self._ingest.describe(seconds)
        said = dict(zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True))
        return said | await self._colocated.describe(seconds)


def _wrong(error: BaseException) -> str:
    return str(error) if isinstance(error, StrataError) else type(error).__name__


def _reason(states: Mapping[str, str], index: object, embedder: object) -> str:
    down = sorted(name for name, state in states.items() if state != "ok")
    if down:
        return f"Stages that do not answer: {', '.join(down)}."
    if index is None:
        return "The index is empty. Fill it: strata ingest PATH"
    if index != embedder:
        return "The index holds vectors of another model than the embedder's. Ingest again, or set embedder.name back."
    return ""
