"""The graph as it is rendered for Kubernetes, deployed by ``serve deploy`` to a head without CPUs and two workers."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path

import httpx
import jwt
import pytest

from deployments.backends import open_database, open_writer
from deployments.settings import RaySettings, Settings
from index.elastic.index import ElasticIndex
from index.ingest import Ingest
from models.load import load_embedder
from tests.integration.conftest import eventually, log_lines
from tests.support.memories import Memories, uri
from tests.support.multinode import Application, MultiNode, overlay, this_machine
from tests.support.steady import SteadyLoad

# Two ingresses have too little room for 20 searches at once, three have some left.
AUTOSCALING = {
    "min_replicas": 2,
    "max_replicas": 4,
    "target_ongoing_requests": 8,
    "look_back_period_s": 5,
    "upscale_delay_s": 5,
    "downscale_delay_s": 10,
}
BUSY, CALM = 20, 10
# A node that is gone is missed after five seconds in place of fifteen: five checks that nobody answers.
ENVIRONMENT = {**RaySettings().environment, "RAY_health_check_period_ms": "1000"}
# However slow this machine is, no search is refused.
UNLIMITED = {
    "account": {"rate_per_s": 1e6, "burst": 1_000_000, "concurrent": 1_000_000},
    "admission": {"target_ms": None},
}


@pytest.fixture(scope="module")
async def settings(elasticsearch_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Settings]:
    """Those of configs/cluster.yaml with what differs here, and the corpus in the index."""
    folder = tmp_path_factory.mktemp("multinode")
    differs = this_machine(folder, elasticsearch_url)
    differs["server"]["deployment"] = {"autoscaling": AUTOSCALING}
    differs["limits"] = UNLIMITED
    differs["ray"] = {"environment": ENVIRONMENT}
    differs["corpora"] = {"enabled": []}
    made = overlay(folder, differs)
    index = await open_writer(made.data_dir, made.index)
    assert isinstance(index, ElasticIndex)
    report = await Ingest(index, index, load_embedder(made.embedder), made.ingest).run("acme", Memories("acme"))
    assert not report.problems
    # As the job k8s/jobs/db-upgrade does, before many ask for the tables at once.
    await (await open_database(made)).close()
    yield made
    await index.versions.destroy()
    await index.close()


@pytest.fixture(scope="module")
def secret() -> str:
    return secrets.token_hex(32)


@pytest.fixture(scope="module")
async def nodes(settings: Settings, secret: str) -> AsyncIterator[MultiNode]:
    """The cluster with the graph on it, complete."""
    nodes = MultiNode({**settings.ray.environment, "STRATA_JWT_SECRET": secret})
    try:
        nodes.deploy(settings)
        await eventually(lambda: complete(nodes))
        yield nodes
    finally:
        await nodes.stop()


@pytest.fixture(scope="module")
async def alice(settings: Settings, secret: str, nodes: MultiNode) -> AsyncIterator[httpx.AsyncClient]:
    known = settings.identity.jwt
    claims = {"iss": known.issuer, "aud": known.audience[0], "exp": time.time() + 3600}
    token = jwt.encode({**claims, "account": "acme", "user_space": "user:alice"}, secret, "HS256")
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=settings.url, headers=headers, timeout=90) as client:
        yield client


async def complete(nodes: MultiNode) -> Application | None:
    graph = await nodes.graph()
    return graph if graph.complete() else None


async def test_the_rendered_config_is_deployed_and_every_stage_answers_on_replicas_of_both_workers(
    nodes: MultiNode, alice: httpx.AsyncClient
) -> None:
    """Issue 10, point 3; issue 9, point 4: stages spread, on processes of their own, and none on the head."""
    graph = await nodes.graph()
    stages = {name: stage for name, stage in graph.deployments.items() if name != "limits"}
    assert {name: stage.nodes() for name, stage in stages.items()} == dict.fromkeys(stages, sorted(nodes.workers))
    assert set(graph.deployments["limits"].nodes()) < set(nodes.workers)
    processes = [replica.pid for stage in graph.deployments.values() for replica in stage.replicas]
    assert len(set(processes)) == len(processes)
    ready = (await alice.get("/readyz")).json()
    assert ready["ready"]
    assert ready["stages"].keys() == stages.keys() - {"ingress"}
    answer = await alice.post("/v1/search_memory", json={"query": "spicy noodles", "include_debug": True})
    found = answer.raise_for_status().json()
    assert uri("user:alice", "profile/food") in {hit["uri"] for hit in found["hits"]}
    assert not found["degraded"]
    read = await alice.post("/v1/read_memory", json={"uri": uri("shared", "guide/backup"), "level": "L2"})
    assert "rsync" in read.raise_for_status().json()["block"]["content_excerpt"]


async def test_a_worker_that_is_killed_takes_only_the_requests_in_flight_on_it_along(
    nodes: MultiNode, alice: httpx.AsyncClient
) -> None:
    """Issue 10, point 3; issue 9, point 4: calls of stages that died are made again, and the service recovers."""
    victim, *_ = (await nodes.graph()).deployments["ingress"].nodes()

    async def recovered() -> bool:
        graph = await nodes.graph()
        return graph.complete() and set(graph.replicas_by_node()) == set(nodes.workers)

    async with SteadyLoad(alice, CALM) as load:
        await load.more(5 * CALM)
        began = time.monotonic()
        await asyncio.to_thread(nodes.kill, victim)
        ended = time.monotonic()
        await eventually(recovered)
        await load.more(5 * CALM)
    failed = [answer for answer in load.answers if answer.status != 200]
    assert [answer for answer in failed if answer.sent > ended or answer.ended < began] == []
    assert not any(answer.degraded for answer in load.answers)
    # What an ingress of the other worker had taken, it has answered, unless the proxy that waited for it was gone.
    assert errors(nodes.logs) <= {"abandoned"}


def errors(logs: Path) -> set[str]:
    """Why ingresses did not answer searches, by their own word."""
    lines = [line for line in log_lines(logs, "serve/replica_strata_ingress_*.log") if "-- {" in line]
    entries = [json.loads(line[line.index("-- {") + 3 :]) for line in lines]
    return {entry["error"] for entry in entries if "error" in entry}


async def test_replicas_follow_the_load_and_do_not_oscillate(nodes: MultiNode, alice: httpx.AsyncClient) -> None:
    """Issue 9, point 4: one change when load comes, one when it is gone, and none between."""
    # As KubeRay does, where a worker is gone.
    await asyncio.to_thread(nodes.fill)
    seen: list[dict[str, int]] = []

    async def look() -> None:
        graph = await nodes.graph()
        seen.append({name: stage.target_num_replicas for name, stage in graph.deployments.items()})

    await look()
    before = seen[0]
    watching = asyncio.create_task(eventually(look, every=0.2))
    async with SteadyLoad(alice, BUSY) as load:
        await eventually(lambda: seen[-1]["ingress"] > before["ingress"])
        await eventually(lambda: complete(nodes))
        await load.more(10 * BUSY)
        during = seen[-1]
    await eventually(lambda: seen[-1] == before)
    watching.cancel()
    assert {answer.status for answer in load.answers} == {200}
    assert during == before | {"ingress": 3}
    changes = {name: [target for target, _ in groupby(each[name] for each in seen)] for name in before}
    assert changes == {name: [target] for name, target in before.items()} | {"ingress": [2, 3, 2]}
    await eventually(lambda: complete(nodes))
