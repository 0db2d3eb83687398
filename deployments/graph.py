"""The graph: one deployment a stage, the ingress in front, all on Ray Serve (D1, D3).

For ``serve deploy`` and a ``RayService`` the import path is ``deployments.graph:app``; its ``args`` are the settings.
"""

import os
import re
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray import serve
from ray.serve.api import _run
from ray.serve.deployment import Application
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview, LoggingConfig

from contracts.errors import ConfigError, Overloaded
from deployments.corpora.replica import IngestReplica
from deployments.environment import Environment
from deployments.ingress import Ingress
from deployments.knowledge_base import replica as knowledge_base
from deployments.limits.replica import LimitsReplica
from deployments.settings import ServerSettings, Settings, resolved
from deployments.stage_settings import BatchSettings, DeploymentSettings
from deployments.stages.assembler import AssemblerReplica
from deployments.stages.base import StageReplica
from deployments.stages.embedder import EmbedderReplica
from deployments.stages.expander import ExpanderReplica
from deployments.stages.planner import PlannerReplica
from deployments.stages.reader import ReaderReplica
from deployments.stages.rechecker import RecheckerReplica
from deployments.stages.reranker import RerankerReplica
from deployments.stages.seed_search import SeedSearchReplica

APP = "strata"
# A search ends by its own deadline; the proxy's time-out is for an ingress that hangs.
_PROXY_GRACE_S = 10.0
_POLL_S = 0.2
# A constructor that fails twice fails for a reason.
_CONSTRUCTOR_RETRIES = 2
# Ray gives its processes 30 s; a machine that is busy for a moment deserves another try.
_RAY_STARTS = 3

Variant = Callable[[type[StageReplica[Any, Any]]], type[StageReplica[Any, Any]]]


def _as_it_is(replica: type[StageReplica[Any, Any]]) -> type[StageReplica[Any, Any]]:
    return replica


def app(args: Settings) -> Application:
    """The app builder that ``serve deploy`` calls."""
    return build(resolved(args, Environment.read()))


def build(settings: Settings, *, variant: Variant = _as_it_is) -> Application:
    """The graph as a Serve application.

    Args:
        settings: With absolute folders, as ``settings.load`` returns them.
        variant: Makes the stages' replicas others, for tests and benchmarks: ``deployments.faults.replica.faulty``,
            ``deployments.overhead.empty.emptied``; never for real requests.
    """
    stages, scoring = settings.stages, settings.scoring
    index = (settings.data_dir, settings.index)
    bind = partial(_bind, variant, settings.ray.wire)
    graph = {
        "planner": bind(PlannerReplica, stages.planner.deployment, stages.planner.config),
        "embedder": bind(EmbedderReplica, stages.embedder.deployment, settings.embedder, batch=stages.embedder.batch),
        "seed_search": bind(
            SeedSearchReplica, stages.seed_search.deployment, *index, stages.seed_search.config, scoring
        ),
        "expander": bind(ExpanderReplica, stages.expander.deployment, *index, stages.expander.config, scoring),
        "rechecker": bind(RecheckerReplica, stages.rechecker.deployment, *index, stages.rechecker.config),
        "reranker": bind(
            RerankerReplica,
            stages.reranker.deployment,
            *(stages.reranker.config, settings.cross_encoder, stages.reranker.side_by_side),
            batch=stages.reranker.batch,
        ),
        "assembler": bind(AssemblerReplica, stages.assembler.deployment, stages.assembler.config),
        "reader": bind(ReaderReplica, stages.reader.deployment, *index, stages.reader.config, settings.redaction),
    }
    remote = {name: stage for name, stage in graph.items() if name not in stages.colocate}
    # The ingress refuses by itself beyond max_concurrent, with a proper answer. Serve's own limit stands behind, for an
    # ingress that is gone or does not get to it; then the proxy refuses.
    limits = {
        "max_ongoing_requests": 2 * settings.server.max_concurrent,
        "backpressure_config": {"status_code": Overloaded.http_status, "retry_after_s": Overloaded.retry_after},
    }
    options = settings.server.deployment.options() | limits
    ingest = _ingest(settings, graph["embedder"])
    kb = knowledge_base.applications(settings, graph["embedder"])
    return _deployment(Ingress, "ingress", options).bind(settings, remote, _ledger(settings), ingest, kb)


def start(settings: Settings) -> None:
    """Join the Ray cluster of the settings, or start one on this machine, and start Serve on it.

    Raises:
        ConfigError: The port is taken.
    """
    _start_ray(settings)
    if settings.ray.address is None and not serve.status().proxies:
        for field in ("port", "direct_port"):
            _check_port(settings.server, field)
    serve.start(
        proxy_location=settings.ray.proxy_location,
        http_options=http_options(settings),
    )


def http_options(settings: Settings) -> dict[str, Any]:
    """Where Serve's proxies listen, and how long they wait for an ingress."""
    return {
        "host": settings.server.host,
        "port": settings.server.port,
        "request_timeout_s": settings.longest_request_s + _PROXY_GRACE_S,
    }


def deploy(settings: Settings, *, variant: Variant = _as_it_is, name: str = APP, route: str = "/") -> None:
    """Run the graph, replacing an earlier one, and wait until every replica is ready.

    Args:
        settings: See :func:`build`.
        variant: See :func:`build`.
        name: Of the Serve application; one graph each.
        route: Under which path it answers.

    Raises:
        ConfigError: The port is taken, a replica can't start (with its own words), or time ran out.
    """
    start(settings)
    # The ingress writes one line a search; Serve's own line a call and replica would only repeat it.
    quiet = LoggingConfig(enable_access_log=False)
    _run(build(settings, variant=variant), _blocking=False, name=name, route_prefix=route, logging_config=quiet)
    _wait_running(name, settings.ray.ready_timeout_s)


def shutdown(settings: Settings) -> None:
    """Stop the graph; and the cluster, when it was started for it."""
    if not ray.is_initialized():
        return
    if settings.ray.address:
        serve.delete(APP)
    else:
        serve.shutdown()
    ray.shutdown()


def _start_ray(settings: Settings) -> None:
    """Nothing when this process has joined a cluster already.

    Raises:
        ConfigError: A cluster of our own did not start.
    """
    if ray.is_initialized():
        return
    cluster = settings.ray
    if cluster.address:
        ray.init(address=cluster.address, log_to_driver=False)
        return
    os.environ.update(cluster.environment)
    for _ in range(_RAY_STARTS):
        try:
            ray.init(
                address="local",
                num_cpus=cluster.num_cpus,
                include_dashboard=cluster.dashboard,
                object_store_memory=cluster.object_store_mb * 2**20,
                log_to_driver=False,
                _metrics_export_port=cluster.metrics_port,
            )
            return
        except Exception as error:  # Ray raises a bare one when its own processes take more than 30 s.
            ray.shutdown()
            if "timed out" not in str(error):
                raise
    raise ConfigError("Ray did not start in time.", field="ray", remedy="Try again when this machine is less busy.")


def _bind(
    variant: Variant,
    wire: bool,
    replica: type[StageReplica[Any, Any]],
    deployment: DeploymentSettings,
    *args: object,
    batch: BatchSettings | None = None,
) -> Application:
    options = deployment.options()
    if batch:
        options["user_config"] = batch.model_dump()
    return _deployment(variant(replica), replica.name, options).bind(*args, places=deployment.places(wire))


def _ledger(settings: Settings) -> Application | None:
    """One replica, and never two: an update stops the old one first."""
    if not settings.limits.active:
        return None
    deployment = DeploymentSettings(num_replicas=1, max_surge_percent=0)
    ledger = _deployment(LimitsReplica, LimitsReplica.name, deployment.options())
    return ledger.bind(settings.limits, places=deployment.places(settings.ray.wire))


def _ingest(settings: Settings, embedder: Application) -> Application | None:
    """What brings the sources of corpora into the index, where there are any."""
    if not settings.corpora.enabled:
        return None
    options = settings.corpora.serving.deployment.options()
    return _deployment(IngestReplica, IngestReplica.name, options).bind(settings, embedder)


def _deployment(kind: type[Any], name: str, options: dict[str, Any]) -> serve.Deployment:
    return serve.deployment(kind).options(name=name, max_constructor_retry_count=_CONSTRUCTOR_RETRIES, **options)


def _check_port(server: ServerSettings, field: str) -> None:
    host, port = server.host, getattr(server, field)
    if port is None:
        return
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} can't be listened on: {error.strerror}.",
            field=f"server.{field}",
            remedy="Take another port.",
        ) from None


def _wait_running(name: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (status := serve.status().applications.get(name)) is None or status.status != ApplicationStatus.RUNNING:
        # UNHEALTHY passes by itself: Serve says so too of a replica that a busy machine is slow to start.
        if status and status.status == ApplicationStatus.DEPLOY_FAILED:
            raise ConfigError(*_failure(status))
        if time.monotonic() > end:
            parts = status.deployments if status else {}
            waiting = sorted(name for name, part in parts.items() if part.status != "HEALTHY")
            raise ConfigError(
                f"The graph is not up after {seconds:.0f} s; still waiting for: {', '.join(waiting)}.",
                field="ray.ready_timeout_s",
                remedy="Give it more CPUs or time, or look into Ray's logs.",
            )
        time.sleep(_POLL_S)


def _failure(status: ApplicationStatusOverview) -> tuple[str]:
    """What kept the graph from starting, in a replica's own words where it had some."""
    messages = [status.message, *(part.message for part in status.deployments.values())]
    for message in messages:
        if own := re.search(r"CONFIG_ERROR: ([^\n]+)", message):
            return (own.group(1),)
    last = next((line for message in reversed(messages) for line in reversed(message.splitlines()) if line.strip()), "")
    return (f"The graph could not start: {last.strip()}",)
