"""The graph as a whole: its deployments, what it does when a part is gone, and that given up work stops."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, get_args

import httpx
import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ServeDeploySchema

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.requests import ReadMemoryRequest, SearchMemoryRequest
from contracts.stages import Plan, PlanRequest
from contracts.trace import STAGES
from deployments import graph
from deployments.ingress import Ingress
from deployments.lifecycle import free_port
from deployments.local import open_local
from deployments.settings import Settings
from deployments.stage_settings import INDEXED, ColocatedStage
from deployments.stages.base import StageReplica
from deployments.transport import RemoteStage
from tests.integration.conftest import Cluster, eventually

QUERY = "run a command and stop it after a timeout"


def replica_pids(stage: str) -> set[int]:
    details = serve.context._get_global_client().get_serve_details()
    replicas = details["applications"][graph.APP]["deployments"][stage]["replicas"]
    return {replica["pid"] for replica in replicas if replica["state"] == "RUNNING"}


async def search(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/v1/search_memory", json={"query": QUERY, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_every_stage_is_a_deployment_of_its_own(served: str) -> None:
    """D1."""
    deployments = serve.status().applications[graph.APP].deployments
    kb = {"knowledge_base", "kb_embedder", "kb_seed_search", "kb_index"}
    assert set(deployments) == {*STAGES, "reader", "ingest", "ingress", *kb}
    pids = [pid for stage in deployments for pid in replica_pids(stage)]
    assert len(set(pids)) == len(deployments)


async def test_the_graph_answers_as_the_chain_in_this_process_does(alice: httpx.AsyncClient, corpus: Settings) -> None:
    """Design decision 1: one chain, two ways to run it."""
    local = await open_local(corpus)
    ctx = RequestContext("acme", user_space="user:alice")
    for query in (QUERY, "索引备份与恢复规范", "noodles"):
        here = await local.search(ctx, SearchMemoryRequest(query=query))
        there = await search(alice, query=query)
        assert [hit["uri"] for hit in there["hits"]] == [hit.uri for hit in here.hits]
        assert [hit["score"] for hit in there["hits"]] == pytest.approx([hit.score for hit in here.hits])
    await local.close()


async def test_a_search_touches_neither_contents_nor_relations(
    corpus: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1, acceptance of seed 1 §10: the same stages on the same index, whose content can't be read."""
    local = await open_local(corpus)

    async def forbidden(*_: object) -> None:
        raise AssertionError("A search must not read.")

    for method in ("read", "edges"):
        monkeypatch.setattr(local.index, method, forbidden)
    ctx = RequestContext("acme", user_space="user:alice")
    answer = await local.search(ctx, SearchMemoryRequest(query=QUERY))
    assert answer.hits
    assert not answer.degraded
    with pytest.raises(AssertionError):
        await local.read(ctx, ReadMemoryRequest(uri=answer.hits[0].uri))
    await local.close()


async def test_a_search_without_the_embedder_is_answered_by_keywords(alice: httpx.AsyncClient) -> None:
    """C30, seed 1 §10: the vector service is down; the answer says so, and the graph recovers by itself."""
    (pid,) = replica_pids("embedder")
    # One that is dead may be replaced within the time that the stage has.
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = await search(alice)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert answer["degraded"][0]["stage"] == "embedder"
    assert any(warning.startswith("embedder: RET-5") for warning in answer["trace"]["warnings"])
    assert answer["hits"][0]["uri"].endswith("python/run")

    async def recovered() -> bool:
        return (await alice.get("/readyz")).status_code == 200

    await eventually(recovered)
    assert (await search(alice))["degraded"] == []


class HangingPlanner:
    """A planner that never answers and counts those who gave up."""

    def __init__(self) -> None:
        self.waiting = self.cancelled = 0

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: PlanRequest) -> Plan:
        if request.query == "report":
            return Plan((), unsure=bool(self.cancelled))
        self.waiting += 1
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("It hangs.")


class HangingReplica(StageReplica[PlanRequest, Plan]):
    name = "hanging"
    request_type = PlanRequest

    async def open(self) -> HangingPlanner:  # type: ignore[override]
        return HangingPlanner()


@pytest.fixture(scope="module")
async def hanging(served: str, corpus: Settings) -> AsyncIterator[RemoteStage[PlanRequest, Plan]]:
    """A second ingress at /hanging whose planner hangs; its other stages are those of the graph."""
    shared = {stage: DeploymentHandle(stage, graph.APP) for stage in [*STAGES, "reader"] if stage != "planner"}
    planner = serve.deployment(HangingReplica).options(name="hanging", ray_actor_options={"num_cpus": 0.1})
    app = serve.deployment(Ingress).options(name="ingress", ray_actor_options={"num_cpus": 0.1})
    bound = app.bind(corpus, {"planner": planner.bind(), **shared})
    await asyncio.to_thread(serve.run, bound, name="hanging", route_prefix="/hanging")
    yield RemoteStage(DeploymentHandle("hanging", "hanging"), Plan)
    await asyncio.to_thread(serve.delete, "hanging")


async def test_a_client_that_hangs_up_stops_the_stage(
    hanging: RemoteStage[PlanRequest, Plan], alice: httpx.AsyncClient
) -> None:
    """Design decision 3; the stage's budget is 20 s, so it is not the deadline that stops it."""
    with pytest.raises(httpx.ReadTimeout):
        await alice.post("/hanging/v1/search_memory", json={"query": QUERY}, timeout=1.0)

    async def cancelled() -> bool:
        report = await hanging(RequestContext(""), Deadline.after(30), PlanRequest("report", 1))
        return report.unsure

    await asyncio.wait_for(eventually(cancelled), 15)


async def test_the_callers_timeout_holds_and_the_planner_degrades(
    hanging: RemoteStage[PlanRequest, Plan], alice: httpx.AsyncClient
) -> None:
    response = await alice.post("/hanging/v1/search_memory", json={"query": QUERY, "timeout_ms": 1000})
    answer = response.json()
    assert response.status_code == 200
    assert answer["degraded"][0]["stage"] == "planner"
    assert answer["degraded"][0]["reason"].startswith("RET-5041")


async def test_all_stages_of_a_search_can_run_inside_the_ingress(
    cluster: Cluster, served: str, corpus: Settings, alice: httpx.AsyncClient
) -> None:
    """Design decision 1: a switch, the same answers; and the same again at the ingress's own door."""
    stages = corpus.stages.model_copy(update={"colocate": get_args(ColocatedStage)})
    server = corpus.server.model_copy(update={"direct_port": free_port()})
    remote = {"reader": DeploymentHandle("reader", graph.APP)}
    app = serve.deployment(Ingress).options(name="ingress", ray_actor_options={"num_cpus": 0.1})
    settings = corpus.model_copy(update={"stages": stages, "server": server})
    await asyncio.to_thread(serve.run, app.bind(settings, remote), name="colocated", route_prefix="/colocated")
    try:
        hits = (await search(alice))["hits"]
        # From memory and from disk scores agree to the last digits of a float, not in them.
        expected = [(hit["uri"], pytest.approx(hit["score"], abs=1e-6)) for hit in hits]
        for url in (f"{served}/colocated", settings.url):
            response = await alice.post(f"{url}/v1/search_memory", json={"query": QUERY}, headers={"x-request-id": "r"})
            assert [(hit["uri"], hit["score"]) for hit in response.json()["hits"]] == expected
            assert response.json()["degraded"] == []
            assert response.headers["x-request-id"] == "r"

        # Those on the index look whether it is well, as in replicas of their own.
        def watched() -> bool:
            found = cluster.scrape().find("index_up", application="colocated")
            return {sample.labels["stage"] for sample in found} == INDEXED

        await eventually(watched)
    finally:
        await asyncio.to_thread(serve.delete, "colocated")
    with pytest.raises(httpx.ConnectError):
        await alice.get(f"{settings.url}/healthz")


def test_colocated_stages_have_no_deployment_in_the_graph(corpus: Settings) -> None:
    stages = corpus.stages.model_copy(update={"colocate": ("planner",)})
    app = graph.build(corpus.model_copy(update={"stages": stages}))
    assert set(app._bound_deployment.init_args[1]) == {*STAGES, "reader"} - {"planner"}


def test_the_app_builder_takes_the_settings_as_arguments(corpus: Settings) -> None:
    """D3: what `serve deploy` and a RayService do."""
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

    ServeDeploySchema.model_validate(
        {"applications": [{"name": "strata", "import_path": "deployments.graph:app", "args": {"server": {"port": 9}}}]}
    )
    built = call_user_app_builder_with_args_if_necessary(graph.app, {"server": {"port": 9}})
    assert built._bound_deployment.init_args[0].server.port == 9
    with pytest.raises(ValueError, match="prot"):
        call_user_app_builder_with_args_if_necessary(graph.app, {"server": {"prot": 9}})
