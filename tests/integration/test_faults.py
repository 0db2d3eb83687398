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
from deployments.faults import replica
from deployments.faults.matrix import EXPECTATIONS, FAULTY_STAGES, READER, Expectation, Row, expectation
from deployments.faults.probe import Matrix, tuned
from deployments.faults.replica import Switches
from deployments.ingress import Ingress
from deployments.settings import Settings
from tests.integration.conftest import Cluster, Scrape, eventually
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

    def total(self, name: str, *apps: str, scrape: Scrape | None = None, **labels: str) -> float:
        """The sum of a metric over the replicas that live now, in this scrape or a new one."""
        living = {replica["replica_id"] for replica in replicas(*apps)}
        samples = (scrape or self.cluster.scrape()).find(name, **labels)
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
    """A second graph on the same cluster and the same data, without the knowledge base, which has no faults."""
    apart = corpus.knowledge_base.model_copy(update={"enabled": False})
    settings = tuned(corpus.model_copy(update={"knowledge_base": apart}))
    quiet = LoggingConfig(enable_access_log=False)
    app = graph.build(settings, variant=replica.faulty)
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


async def test_what_a_caller_gave_up_on_stops_in_every_stage(faulty: Faulty) -> None:
    """Design decision 3: a stage would work for a minute, and stops when its caller's time is up; it is counted."""

    def counted() -> dict[str, float]:
        scrape = faulty.cluster.scrape()
        return {s: faulty.total("stage_error_count_total", scrape=scrape, stage=s) for s in FAULTY_STAGES}

    async def stopped() -> bool:
        # On a busy machine a request may run out of time before it reaches the stage.
        missing = [stage for stage, count in counted().items() if count == before[stage]]
        for stage in missing:
            async with faulty.switches.fault(stage, "hangs"):
                await faulty.ask(stage, timeout_ms=900)
        return not missing and faulty.total("stage_in_flight") == 0

    await faulty.healthy()
    before = counted()
    await asyncio.wait_for(eventually(stopped), ENDLESS_MS / 1000)


async def test_every_degradation_is_in_the_warnings_and_counted(faulty: Faulty) -> None:
    """C30, C41, design decision 3."""
    await faulty.healthy()
    codes = {stage: expectation(stage, "raises").codes[0] for stage in STAGES}

    def counted() -> dict[str, float]:
        scrape = faulty.cluster.scrape()
        return {s: faulty.total("fallback_count_total", scrape=scrape, stage=s, code=codes[s]) for s in STAGES}

    before = counted()
    for stage in STAGES:
        async with faulty.switches.fault(stage, "raises"):
            answer = await faulty.search()
        assert named(answer, stage) == {codes[stage]}
        told = {f"{part['stage']}: {part['reason']}" for part in answer["degraded"]}
        assert told <= set(answer["trace"]["warnings"])

    await eventually(lambda: all(count > before[stage] for stage, count in counted().items()))


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
        scrape, gauges = faulty.cluster.scrape(), ("stage_in_flight", "requests_in_flight")
        return not sum(faulty.total(name, APP, "patient", scrape=scrape) for name in gauges)

    def memory() -> dict[int, int]:
        pids = [replica["pid"] for replica in replicas(APP, "patient")]
        return {pid: psutil.Process(pid).memory_info().rss for pid in pids}

    await faulty.healthy()
    for stage in STORMY:  # a warm-up: connections, buffers, metrics
        await wave(stage)
    before, abandoned, stages = memory(), 0, cycle(STORMY)
    stopped = faulty.total("stage_error_count_total")
    while abandoned < 500:
        abandoned += await wave(next(stages))
    await asyncio.wait_for(eventually(idle), ENDLESS_MS / 1000)
    await eventually(lambda: faulty.total("stage_error_count_total") >= stopped + abandoned)
    after = memory()
    assert after.keys() == before.keys()
    assert {pid: rss / before[pid] for pid, rss in after.items() if rss > 1.1 * before[pid]} == {}
    assert (await faulty.client.post(patient, json={"query": QUERY, "top_k": 1})).json()["degraded"] == []


def test_a_graph_has_no_faults_unless_it_is_built_with_them(corpus: Settings) -> None:
    for faults, app in ((False, graph.build(corpus)), (True, graph.build(corpus, variant=replica.faulty))):
        stages = app._bound_deployment.init_args[1].values()
        assert {hasattr(stage._bound_deployment.func_or_class, "inject") for stage in stages} == {faults}
    assert not re.search(r'"faults?"', json.dumps(Settings.model_json_schema()))


async def test_a_reranker_that_fails_costs_a_corpus_its_order_and_no_hit(
    faulty: Faulty, client: Callable[..., httpx.AsyncClient]
) -> None:
    """R3: the order before it, with a reason code; and when the graph fails altogether, the keyword search (R8)."""
    headers = {"authorization": client("corpora", user_space="user:alice").headers["authorization"]}
    where = {"user_id": "alice", "assistant_id": "helper", "conversation_id": "faults"}
    items = [{"text": "Alice drinks green tea"}, {"text": "Alice plays the cello"}]
    body = {**where, "items": items}
    receipt = await faulty.client.post(
        "/v1/corpora/memory/ingest", json=body, headers=headers, params={"wait_ms": 60_000}
    )
    assert receipt.json()["state"] == "stored", receipt.text

    async def retrieve(query: str) -> dict[str, Any]:
        asked = {"query": query, "dimensions": where, "threshold": 0.0}
        response = await faulty.client.post("/v1/corpora/memory/retrieve", json=asked, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()

    async with faulty.switches.fault("reranker", "raises"):
        answer = await retrieve("green tea")
        assert named(answer, "reranker") <= {"RET-5004", "RET-5042"}
        assert named(answer, "reranker")
        assert (answer["path"], len(answer["hits"])) == ("rag", 2)
        assert answer["hits"][0]["text"] == "Alice drinks green tea"
    async with faulty.switches.fault("planner", "raises"), faulty.switches.fault("embedder", "raises"):
        answer = await retrieve("the cello")
        assert answer["hits"][0]["text"] == "Alice plays the cello"
        assert answer["degraded"]
    await faulty.healthy()
