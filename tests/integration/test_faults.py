"""Each stage × each fault on the real graph: the answer comes, says what it lacks, and given up work stops."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import httpx
import psutil
import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from contracts.errors import StageDown, StageTimeout
from contracts.trace import STAGES
from deployments import graph
from deployments.faults.matrix import EXPECTATIONS, FAULTY_STAGES, READER, Expectation, Row
from deployments.faults.probe import Matrix, tuned
from deployments.faults.replica import Switches
from deployments.ingress import Ingress
from deployments.settings import Settings
from tests.integration.conftest import Cluster, eventually
from tests.support.memories import uri

APP = "faults"
QUERY = "run a command and stop it after a timeout"
# A fault of a minute is what an endless one looks like; any real time-out is far below.
ENDLESS_MS = 30_000
# The first stages: requests reach them soon.
STORMY = STAGES[:3]


@dataclass(frozen=True)
class Faulty:
    """The graph with faults, seen from outside."""

    cluster: Cluster
    settings: Settings
    client: httpx.AsyncClient
    switches: Switches
    matrix: Matrix

    async def search(self, **fields: Any) -> dict[str, Any]:
        response = await self.client.post("/v1/search_memory", json={"query": QUERY, "top_k": 3, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    async def ask(self, stage: str, **fields: Any) -> httpx.Response:
        """A request that takes the way through a stage."""
        if stage == READER:
            return await self.client.post("/v1/read_memory", json={"uri": uri("shared", "python/run")})
        return await self.client.post("/v1/search_memory", json={"query": QUERY, "top_k": 3, **fields})

    async def healthy(self) -> None:
        """Wait until nothing is missing."""

        async def whole() -> bool:
            return not (await self.search())["degraded"] and (await self.ask(READER)).status_code == 200

        await eventually(whole)

    def total(self, name: str, *apps: str, **labels: str) -> float:
        """The sum of a metric over the replicas that live now."""
        living = {replica["replica_id"] for replica in replicas(*apps)}
        samples = self.cluster.scrape().find(name, **labels)
        return sum(sample.value for sample in samples if sample.labels["replica"] in living)


def replicas(*apps: str) -> list[dict[str, Any]]:
    """The replicas of applications, by default of the one with faults, that live now."""
    details = serve.context._get_global_client().get_serve_details()["applications"]
    deployments = [each for app in apps or [APP] for each in details[app]["deployments"].values()]
    return [replica for each in deployments for replica in each["replicas"] if replica["state"] == "RUNNING"]


def named(answer: dict[str, Any], stage: str) -> set[str]:
    """The codes under which a stage is in ``degraded``."""
    return {part["reason"].split(":")[0] for part in answer["degraded"] if part["stage"] == stage}


@pytest.fixture(scope="module")
async def faulty(cluster: Cluster, client: Callable[..., httpx.AsyncClient], corpus: Settings) -> AsyncIterator[Faulty]:
    """A second graph on the same cluster and the same data."""
    settings = tuned(corpus)
    quiet = LoggingConfig(enable_access_log=False)
    app = graph.build(settings, faults=True)
    await asyncio.to_thread(serve.run, app, name=APP, route_prefix=f"/{APP}", logging_config=quiet)
    key = client(user_space="user:alice").headers["authorization"]
    limits = httpx.Limits(max_connections=200)
    http = httpx.AsyncClient(
        base_url=f"{settings.url}/{APP}", headers={"authorization": key}, timeout=90, limits=limits
    )
    switches = Switches(APP, FAULTY_STAGES)
    yield Faulty(cluster, settings, http, switches, Matrix(http, switches, settings, QUERY))
    await http.aclose()
    await asyncio.to_thread(serve.delete, APP)


@pytest.mark.parametrize("expected", EXPECTATIONS, ids=lambda e: f"{e.stage}-{e.fault.replace(' ', '-')}")
async def test_a_fault_costs_its_stages_part_and_nothing_else(
    faulty: Faulty, expected: Expectation, fault_rows: list[Row]
) -> None:
    """C30, design decision 3. How many calls were in time is told in the table at the end of the run."""
    row = await faulty.matrix.row(expected)
    fault_rows.append(row)
    assert row.problems == ()
    assert row.max_ms < ENDLESS_MS


@pytest.mark.parametrize("stage", FAULTY_STAGES)
async def test_what_a_caller_gave_up_on_stops(faulty: Faulty, stage: str) -> None:
    """Design decision 3: the stage would work for a minute, and stops when its caller's time is up."""
    await faulty.healthy()
    ended = faulty.total("stage_work_ms_count", stage=stage)
    async with faulty.switches.fault(stage, "hangs"):

        async def stopped() -> bool:
            await faulty.ask(stage, timeout_ms=900)
            return (
                faulty.total("stage_work_ms_count", stage=stage) > ended
                and faulty.total("stage_in_flight", stage=stage) == 0
            )

        await asyncio.wait_for(eventually(stopped), ENDLESS_MS / 1000)


async def test_a_circuit_opens_closes_again_and_is_in_the_metrics(faulty: Faulty) -> None:
    async def only_skipped() -> bool:
        return named(await faulty.search(), "expander") == {StageDown.code}

    await faulty.healthy()
    async with faulty.switches.fault("expander", "raises"):
        await eventually(only_skipped)
        await eventually(lambda: faulty.total("stage_circuit", stage="expander") == 2)
    await faulty.healthy()
    await eventually(lambda: faulty.total("stage_circuit", stage="expander") == 0)


async def test_callers_with_little_time_open_no_circuit_for_the_others(faulty: Faulty) -> None:
    await faulty.healthy()
    async with faulty.switches.fault("embedder", "slow", ms=100):
        for _ in range(2 * faulty.settings.chain.breaker.failures):
            assert named(await faulty.search(timeout_ms=110), "embedder") == {StageTimeout.code}
        assert StageDown.code not in named(await faulty.search(), "embedder")


async def test_an_ingress_that_dies_leaves_nobody_waiting(faulty: Faulty) -> None:
    """What is under way fails; of what comes then Serve's proxy queues a part, and refuses the rest."""
    await faulty.healthy()
    (ingress,) = [replica["pid"] for replica in replicas() if "ingress" in replica["actor_name"]]
    async with faulty.switches.fault("planner", "hangs"):
        begun = asyncio.gather(*(faulty.ask("planner") for _ in range(4)))
        await eventually(lambda: faulty.switches.stuck("planner"))
        os.kill(ingress, signal.SIGKILL)
    lost = [response for response in await begun if response.status_code != 200]
    assert {(response.status_code, response.json()["code"]) for response in lost} == {(503, "RET-5004")}
    assert all(response.json()["retryable"] and response.headers["retry-after"] == "1" for response in lost)
    responses = await asyncio.gather(*(faulty.ask("planner") for _ in range(200)))
    refused = [response for response in responses if response.status_code == 429]
    assert {response.status_code for response in responses} == {200, 429}
    assert {(response.json()["code"], response.headers["retry-after"]) for response in refused} == {("RET-4291", "1")}
    await faulty.healthy()


@pytest.fixture
async def patient(faulty: Faulty, corpus: Settings) -> AsyncIterator[str]:
    """A second ingress to the same stages; its budgets are long, so that nothing but its caller stops a stage."""
    handles = {stage: DeploymentHandle(stage, APP) for stage in FAULTY_STAGES}
    ingress = serve.deployment(Ingress).options(
        name="ingress", ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=128
    )
    await asyncio.to_thread(serve.run, ingress.bind(corpus, handles), name="patient", route_prefix="/patient")
    yield f"{corpus.url}/patient/v1/search_memory"
    await asyncio.to_thread(serve.delete, "patient")


async def test_after_a_storm_of_abandoned_requests_all_is_as_before(faulty: Faulty, patient: str) -> None:
    """500 callers hang up while a stage hangs: every replica idle, memory within 10 %, the next request normal."""

    async def wave(stage: str) -> int:
        """Let 50 calls hang in a stage and abandon them; returns how many hung."""
        async with faulty.switches.fault(stage, "hangs"):
            calls: list[asyncio.Task[httpx.Response]] = []

            async def settled() -> bool:
                ended = sum(call.done() for call in calls)  # on a busy machine some run out of time
                return ended + await faulty.switches.stuck(stage) >= len(calls)

            while len(calls) < 50:
                # As many at once as the short queues of this graph let through.
                calls += [
                    asyncio.create_task(faulty.client.post(patient, json={"query": QUERY, "top_k": 1}))
                    for _ in range(2)
                ]
                await eventually(settled, every=0.005)
            abandoned = sum(call.cancel() for call in calls)
            await asyncio.gather(*calls, return_exceptions=True)

            async def stopped() -> bool:
                return await faulty.switches.stuck(stage) == 0

            await asyncio.wait_for(eventually(stopped), ENDLESS_MS / 1000)
        return abandoned

    def idle() -> bool:
        return not sum(faulty.total(name, APP, "patient") for name in ("stage_in_flight", "requests_in_flight"))

    def memory() -> dict[int, int]:
        pids = [replica["pid"] for replica in replicas(APP, "patient")]
        return {pid: psutil.Process(pid).memory_info().rss for pid in pids}

    await faulty.healthy()
    for stage in STORMY:  # a warm-up: connections, buffers, metrics
        await wave(stage)
    before, abandoned, stages = memory(), 0, cycle(STORMY)
    while abandoned < 500:
        abandoned += await wave(next(stages))
    await asyncio.wait_for(eventually(idle), ENDLESS_MS / 1000)
    after = memory()
    assert after.keys() == before.keys()
    assert {pid: rss / before[pid] for pid, rss in after.items() if rss > 1.1 * before[pid]} == {}
    assert (await faulty.client.post(patient, json={"query": QUERY, "top_k": 1})).json()["degraded"] == []


def test_a_graph_has_no_faults_unless_it_is_built_with_them(corpus: Settings) -> None:
    for faults in (False, True):
        stages = graph.build(corpus, faults=faults)._bound_deployment.init_args[1].values()
        assert {hasattr(stage._bound_deployment.func_or_class, "inject") for stage in stages} == {faults}
    assert not re.search(r'"faults?"', json.dumps(Settings.model_json_schema()))
