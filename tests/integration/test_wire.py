"""The wire on a real cluster: replicas come and go, and no call is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from contracts.deadline import Deadline
from deployments.stage_settings import AutoscalingSettings, DeploymentSettings
from deployments.transport import RemoteStage
from tests.integration.conftest import eventually
from tests.support.probe import CTX, Order, Probe, Report

APP = "wire"

Run = Callable[..., Awaitable[RemoteStage[Order, Report]]]


@pytest.fixture
async def run(cluster: Any) -> AsyncIterator[Run]:
    """Deploys the stage, in place of an earlier one, and connects to it."""

    async def run(deployment: DeploymentSettings) -> RemoteStage[Order, Report]:
        probe = serve.deployment(Probe).options(name="probe", **deployment.options())
        app = probe.bind(places=deployment.places(wire=True))
        await asyncio.to_thread(serve.run, app, name=APP, route_prefix=None)
        stage = RemoteStage[Order, Report](DeploymentHandle("probe", APP), Report)
        await stage.connect()
        return stage

    yield run
    await asyncio.to_thread(serve.delete, APP)


async def ask(stage: RemoteStage[Order, Report], order: Order | None = None) -> Report:
    return await stage(CTX, Deadline.after(120), order or Order())


def routed(cluster: Any) -> float:
    return float(cluster.scrape().total("stage_routed_count_total", stage="probe"))


async def test_no_call_is_lost_while_a_replica_is_replaced(run: Run, tmp_path: Path) -> None:
    """Issue 9, point 4: what it has begun it ends, and what comes later goes to the new one."""
    stage = await run(DeploymentSettings())
    old = (await ask(stage)).pid
    released, over = tmp_path / "released", asyncio.Event()
    begun = asyncio.create_task(ask(stage, Order("wait", str(released))))
    pids: list[int] = []

    async def call() -> None:
        while not over.is_set():
            pids.append((await ask(stage)).pid)

    async with asyncio.TaskGroup() as calls:
        for _ in range(4):
            calls.create_task(call())
        await eventually(lambda: pids)
        replacing = asyncio.create_task(run(DeploymentSettings(max_queued_requests=64)))
        await eventually(lambda: pids[-1] != old)
        released.touch()
        assert (await begun).pid == old
        await replacing
        seen = len(pids)
        await eventually(lambda: len(pids) > seen + 20 and old not in pids[seen:])
        over.set()
    assert stage._lines.best() is not None


async def test_a_replica_that_comes_gets_calls_and_calls_by_the_wire_bring_it(run: Run) -> None:
    """Issue 9, point 4: Serve does not route these calls, and scales by them all the same."""
    scaling = AutoscalingSettings(
        max_replicas=2, target_ongoing_requests=2, look_back_period_s=1, upscale_delay_s=1, downscale_delay_s=3
    )
    stage = await run(DeploymentSettings(autoscaling=scaling))
    first = (await ask(stage)).pid
    calls = [asyncio.create_task(ask(stage, Order("hang"))) for _ in range(4)]

    async def replicas() -> int:
        deployment = (await asyncio.to_thread(serve.status)).applications[APP].deployments["probe"]
        return deployment.replica_states.get("RUNNING", 0)

    async def another() -> bool:
        return (await ask(stage)).pid != first

    await eventually(another)
    assert await replicas() == 2
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    async def alone() -> bool:
        return await replicas() == 1

    await eventually(alone)


async def test_where_replicas_listen_no_call_goes_through_serves_router(run: Run, cluster: Any) -> None:
    stage = await run(DeploymentSettings(num_replicas=2))
    before = routed(cluster)
    pids = {report.pid for report in await asyncio.gather(*(ask(stage) for _ in range(40)))}
    assert len(pids) == 2
    unheard = RemoteStage[Order, Report](DeploymentHandle("probe", APP), Report)
    await ask(unheard)
    await eventually(lambda: routed(cluster) > before)
    assert routed(cluster) == before + 1


async def test_who_does_not_know_the_token_gets_no_answer(run: Run) -> None:
    stage = await run(DeploymentSettings())
    line = stage._lines.best()
    assert line is not None
    reader, writer = await asyncio.open_connection(line._address.host, line._address.port)
    writer.write((32).to_bytes(4, "little") + bytes(9) + bytes(32))
    assert await reader.read() == b""
    writer.close()
    assert (await ask(stage)).account_id == "acme"
