"""Who may ask, and how much, on a graph with two ingress replicas."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.stages import Plan, PlanRequest
from contracts.trace import STAGES
from deployments import graph
from deployments.ingress import Ingress
from deployments.limits.replica import LimitsReplica
from deployments.settings import Settings
from deployments.stages.base import StageReplica
from deployments.transport import connect
from stages.planner import Planner, PlannerConfig
from tests.integration.conftest import Cluster, eventually
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.keys import Keys
from tests.support.memories import uri

Make = Callable[..., httpx.AsyncClient]
APP = "guarded"
RATE, BURST, CONCURRENT = 5, 20, 3
issuer = Issuer()


class GatedPlanner:
    """Plans as ever, but holds a query for ``hold`` until the test opens the gate."""

    def __init__(self) -> None:
        self.planner = Planner(PlannerConfig())
        self.gate = asyncio.Event()
        self.held = self.most = 0

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: PlanRequest, /) -> Plan:
        if request.query == "hold":
            self.held += 1
            self.most = max(self.most, self.held)
            try:
                await self.gate.wait()
            finally:
                self.held -= 1
        return await self.planner(ctx, deadline, request)


class GatedReplica(StageReplica[PlanRequest, Plan]):
    name = "gated"
    request_type = PlanRequest

    async def open(self) -> GatedPlanner:
        self.planner = GatedPlanner()
        return self.planner

    async def held(self) -> tuple[int, int]:
        """How many are held now, and were at most."""
        return self.planner.held, self.planner.most

    async def release(self) -> None:
        self.planner.gate.set()
        self.planner.gate = asyncio.Event()
        self.planner.most = 0


class Gate:
    """The test's side of the planner."""

    def __init__(self) -> None:
        self.handle = connect(DeploymentHandle("gated", APP))

    async def held(self) -> tuple[int, int]:
        return await self.handle.options(method_name="held").remote()

    async def release(self) -> None:
        await self.handle.options(method_name="release").remote()


@pytest.fixture(scope="module")
async def guarded(served: str, corpus: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gate]:
    """A second application at /guarded: two ingresses with limits and JWTs, over the stages of the graph."""
    jwks = tmp_path_factory.mktemp("identity") / "jwks.json"
    jwks.write_text(issuer.jwks())
    jwt = {"issuer": ISSUER, "audience": [AUDIENCE], "algorithms": ["RS256", "ES256"], "jwks_file": jwks}
    limits = {
        "accounts": {"rated": {"rate_per_s": RATE, "burst": BURST}, "narrow": {"concurrent": CONCURRENT}},
        "key": {"rate_per_s": 500, "burst": 1000},
        "timeout_ms": 2000,
        # Searches at once are not held to their latency here.
        "admission": {"target_ms": None},
    }
    server = {**corpus.server.model_dump(), "body_timeout_ms": 2000}
    settings = Settings.model_validate(
        {**corpus.model_dump(), "server": server, "identity": {"jwt": jwt}, "limits": limits}
    )
    stages: dict[str, Any] = {name: DeploymentHandle(name, graph.APP) for name in [*STAGES, "reader"]}
    small = {"ray_actor_options": {"num_cpus": 0.1}}
    stages["planner"] = serve.deployment(GatedReplica).options(name="gated", **small).bind()
    ledger = serve.deployment(LimitsReplica).options(name="limits", **small).bind(settings.limits)
    ingress = serve.deployment(Ingress).options(name="ingress", num_replicas=2, max_ongoing_requests=200, **small)
    await asyncio.to_thread(serve.run, ingress.bind(settings, stages, ledger), name=APP, route_prefix=f"/{APP}")
    yield Gate()
    await asyncio.to_thread(serve.delete, APP)


def pids(deployment: str) -> set[int]:
    details = serve.context._get_global_client().get_serve_details()
    replicas = details["applications"][APP]["deployments"][deployment]["replicas"]
    return {replica["pid"] for replica in replicas if replica["state"] == "RUNNING"}


async def ask(client: httpx.AsyncClient, query: str = "noodles", **headers: str) -> httpx.Response:
    return await client.post(f"/{APP}/v1/search_memory", json={"query": query}, headers=headers)


async def knock(client: httpx.AsyncClient) -> httpx.Response:
    """The cheapest request that passes the limits: 400 when it is let in."""
    response = await client.post(f"/{APP}/v1/search_memory", json={})
    assert response.status_code in {400, 429}, response.text
    return response


@pytest.fixture
async def anyone(served: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served, timeout=90) as client:
        yield client


async def test_a_rate_holds_over_all_ingresses_together(guarded: Gate, client: Make, cluster: Cluster) -> None:
    """Never more than the burst and what the rate gives meanwhile; another account does not notice."""
    rated, acme = client("rated"), client("acme")
    started = time.monotonic()
    answers, others = [], []
    for _ in range(4):
        answers += await asyncio.gather(*(knock(rated) for _ in range(50)))
        others += await asyncio.gather(*(knock(acme) for _ in range(10)))
    admitted = sum(answer.status_code == 400 for answer in answers)
    assert 0 < admitted <= BURST + RATE * (time.monotonic() - started)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert {answer.json()["code"] for answer in refused} == {"RET-4292"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert all(answer.status_code == 400 for answer in others)

    def both() -> bool:
        found = cluster.scrape().find("rate_limited_count_total", application=APP, reason="account_rate")
        return len({sample.labels["replica"] for sample in found}) == 2

    await eventually(both)


async def test_no_more_requests_of_an_account_run_at_once_than_may(guarded: Gate, client: Make) -> None:
    narrow, acme = client("narrow"), client("acme")
    waiting = {asyncio.create_task(ask(narrow, "hold")) for _ in range(12)}
    refused: set[asyncio.Task[httpx.Response]] = set()
    while len(refused) < 12 - CONCURRENT:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused |= done
    assert {task.result().status_code for task in refused} == {429}
    assert (await ask(acme)).status_code == 200

    async def all_held() -> bool:
        return (await guarded.held())[0] == CONCURRENT

    await eventually(all_held)
    assert await guarded.held() == (CONCURRENT, CONCURRENT)
    await guarded.release()
    assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * CONCURRENT

    async def free_again() -> bool:
        return (await knock(narrow)).status_code == 400

    await eventually(free_again)


async def test_clients_that_send_a_byte_at_a_time_hold_their_accounts_places_only_for_a_while(
    guarded: Gate, client: Make, served: str
) -> None:
    narrow, where = client("narrow"), httpx.URL(served)
    head = "\r\n".join(
        [
            f"POST /{APP}/v1/search_memory HTTP/1.1",
            f"host: {where.host}",
            f"authorization: {narrow.headers['authorization']}",
            "content-length: 100000",
            *("", ""),
        ]
    )

    async def send_slowly() -> bytes:
        """All that is answered until the connection is closed."""
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(head.encode())

        async def trickle() -> None:
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.1)

        sending, answer = asyncio.create_task(trickle()), b""
        try:
            # Bytes that come after the answer may make the end of the connection a reset.
            with suppress(ConnectionResetError):
                while part := await reader.read(2**16):
                    sending.cancel()
                    answer += part
        finally:
            sending.cancel()
            writer.close()
        return answer

    for answer in await asyncio.gather(*(send_slowly() for _ in range(CONCURRENT))):
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"RET-4080" in answer

    async def free_again() -> bool:
        return (await knock(narrow)).status_code == 400

    await eventually(free_again)


async def test_an_ingress_that_dies_gives_its_slots_back(guarded: Gate, client: Make) -> None:
    narrow = client("narrow")
    waiting = [asyncio.create_task(ask(narrow, "hold")) for _ in range(CONCURRENT)]

    async def all_held() -> bool:
        return (await guarded.held())[0] == CONCURRENT

    await eventually(all_held)
    for pid in pids("ingress"):
        os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*waiting, return_exceptions=True)
    await guarded.release()

    async def free_again() -> bool:
        answer = await narrow.post(f"/{APP}/v1/search_memory", json={})
        return answer.status_code == 400

    await eventually(free_again)


async def test_without_the_ledger_requests_are_answered_and_counted_as_a_degradation(
    guarded: Gate, client: Make, cluster: Cluster
) -> None:
    rated = client("rated")
    before = cluster.scrape().total("fallback_count_total", stage="limits")

    async def counted() -> bool:
        for pid in pids("limits"):
            with suppress(ProcessLookupError):  # Killed in the round before, and only just gone.
                os.kill(pid, signal.SIGKILL)
        await knock(rated)
        return cluster.scrape().total("fallback_count_total", stage="limits") > before

    await eventually(counted)

    async def back() -> bool:
        return bool(pids("limits"))

    await eventually(back)


async def test_a_revoked_key_is_refused_at_once_by_every_ingress(guarded: Gate, client: Make, keys: Keys) -> None:
    mine = client(user_space="user:alice")
    assert {answer.status_code for answer in await asyncio.gather(*(knock(mine) for _ in range(20)))} == {400}
    keys.revoke(mine.headers["authorization"].split("_")[1])
    assert {answer.status_code for answer in await asyncio.gather(*(ask(mine) for _ in range(20)))} == {401}


async def test_a_rotated_key_holds_for_its_overlap_and_no_longer(guarded: Gate, client: Make, keys: Keys) -> None:
    mine = client(user_space="user:alice")
    old = mine.headers["authorization"]
    token, _ = keys.rotate(old.split("_")[1], overlap_ms=3_600_000)
    answers = await asyncio.gather(*(ask(mine, authorization=key) for key in (old, f"Bearer {token}") * 5))
    assert {answer.status_code for answer in answers} == {200}
    latest, _ = keys.rotate(token.split("_")[1], overlap_ms=0)
    answers = await asyncio.gather(*(ask(mine, authorization=f"Bearer {token}") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {401}
    assert (await ask(mine, authorization=f"Bearer {latest}")).status_code == 200


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_jwt_sees_what_its_claims_say_and_no_more(
    guarded: Gate, anyone: httpx.AsyncClient, algorithm: str
) -> None:
    """C20."""
    token = issuer.token(algorithm=algorithm, account="acme", user_space="user:alice")
    answer = await ask(anyone, "Alice 的咖啡偏好", authorization=f"Bearer {token}")
    assert answer.json()["hits"][0]["uri"] == uri("user:alice", "profile/coffee")
    rival = issuer.token(algorithm=algorithm, account="rival", user_space="user:alice")
    answer = await ask(anyone, "Alice 的咖啡偏好", authorization=f"Bearer {rival}")
    assert all("rival" in hit["abstract"] for hit in answer.json()["hits"])


async def test_every_wrong_jwt_gets_the_same_answer_as_a_wrong_key(guarded: Gate, anyone: httpx.AsyncClient) -> None:
    bodies = {}
    for kind, token in {**issuer.forgeries(), "a wrong key": "strata_0_0"}.items():
        header = {"authorization": f"Bearer {token}".encode("latin-1"), "x-request-id": "r"}
        answer = await anyone.post(f"/{APP}/v1/search_memory", json={"query": "x"}, headers=header)
        bodies[kind] = (answer.status_code, answer.text)
    assert bodies["a wrong key"][0] == 401
    assert {kind for kind, body in bodies.items() if body != bodies["a wrong key"]} == set()


async def test_refused_credentials_are_counted_by_reason(
    guarded: Gate, anyone: httpx.AsyncClient, cluster: Cluster
) -> None:
    assert (await ask(anyone, authorization=f"Bearer {issuer.token(account='acme', exp=1)}")).status_code == 401
    await eventually(lambda: cluster.scrape().total("unauthenticated_count_total", reason="jwt_expired") > 0)


def test_where_something_is_limited_the_graph_has_a_ledger(corpus: Settings) -> None:
    limited = Settings.model_validate({**corpus.model_dump(), "limits": {"account": {"concurrent": 5}}})
    for settings, expected in ((corpus, None), (limited, "limits")):
        ledger = graph.build(settings)._bound_deployment.init_args[2]
        assert (ledger and ledger._bound_deployment.name) == expected
