"""Stage calls on a real cluster: what a caller gives up on stops, and errors arrive as they were raised."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, Overloaded, StageFailed, StageTimeout, TargetForbidden
from deployments.transport import RemoteStage
from deployments.wire.places import Places
from tests.integration.conftest import log_lines
from tests.support.probe import CTX, Order, Probe, Report


@pytest.fixture(scope="module", params=[Places(8, 8), None], ids=["wire", "handle"])
async def probe(cluster: Any, request: pytest.FixtureRequest) -> AsyncIterator[RemoteStage[Order, Report]]:
    """A stage that is reached by the wire, and one that is not."""
    app = serve.deployment(Probe).options(
        name="probe", ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=8, max_queued_requests=8
    )
    await asyncio.to_thread(serve.run, app.bind(places=request.param), name="transport", route_prefix=None)
    stage = RemoteStage[Order, Report](DeploymentHandle("probe", "transport"), Report)
    await stage.connect()
    assert (stage._lines.best() is not None) == (request.param is not None)
    yield stage
    await asyncio.to_thread(serve.delete, "transport")


async def report(probe: RemoteStage[Order, Report]) -> Report:
    return await probe(CTX, Deadline.after(30), Order("report"))


async def until(probe: RemoteStage[Order, Report], condition: Any) -> Report:
    """The first report that satisfies ``condition``; the test's own timeout bounds the wait."""
    while not condition(seen := await report(probe)):  # noqa: ASYNC110 -- the condition lies in another process
        await asyncio.sleep(0.02)
    return seen


async def test_a_call_brings_the_context_and_the_result_across(probe: RemoteStage[Order, Report]) -> None:
    answer = await probe(CTX, Deadline.after(30), Order())
    assert answer.account_id == "acme"
    assert answer.pid != os.getpid()


async def test_a_hanging_stage_gives_stage_timeout_and_its_work_stops(probe: RemoteStage[Order, Report]) -> None:
    """D2, design decision 3: time-outs cancel the work they gave up on."""
    before = await report(probe)
    with pytest.raises(StageTimeout) as caught:
        await probe(CTX, Deadline.after(0.3), Order("hang"))
    assert caught.value.stage == "probe"
    after = await until(probe, lambda seen: seen.cancelled > before.cancelled)
    assert after.started == before.started + 1
    assert after.running == 0


async def test_cancelling_the_caller_stops_the_stage_long_before_its_deadline(
    probe: RemoteStage[Order, Report],
) -> None:
    before = await report(probe)
    call = asyncio.create_task(probe(CTX, Deadline.after(3600), Order("hang")))
    await until(probe, lambda seen: seen.started > before.started)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(probe, lambda seen: seen.cancelled > before.cancelled)


async def test_a_call_whose_deadline_has_passed_never_starts(probe: RemoteStage[Order, Report]) -> None:
    before = await report(probe)
    with pytest.raises(StageTimeout):
        await probe(CTX, Deadline.after(-1), Order())
    assert (await report(probe)).started == before.started


@pytest.mark.parametrize(("act", "kind"), [("forbid", TargetForbidden), ("refuse", InvalidFilter)])
async def test_errors_of_the_contract_arrive_as_the_same_class(
    probe: RemoteStage[Order, Report], act: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        await probe(CTX, Deadline.after(30), Order(act))
    assert caught.value.stage == "probe"  # type: ignore[attr-defined]
    assert caught.value.field in {"target_uri", "filter.eq"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("act", ["break", "time out", "cancel", "garbage"])
async def test_any_other_failure_is_stage_failed_and_tells_nothing(
    probe: RemoteStage[Order, Report], logs: Path, act: str
) -> None:
    """C42: neither the answer nor the log has the text of a request."""
    with pytest.raises(StageFailed) as caught:
        await probe(CTX, Deadline.after(30), Order(act, "zyzzyva"))
    assert caught.value.stage == "probe"
    assert "zyzzyva" not in str(caught.value)
    assert caught.value.retryable
    lines = log_lines(logs, "serve/replica_transport_probe*.log")
    assert lines
    assert not any("zyzzyva" in line for line in lines)


async def test_a_full_queue_refuses_instead_of_waiting(probe: RemoteStage[Order, Report]) -> None:
    calls = [asyncio.create_task(probe(CTX, Deadline.after(3600), Order("hang"))) for _ in range(40)]
    done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
    assert all(isinstance(call.exception(), Overloaded) for call in done)
    for call in pending:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_after_a_storm_of_cancelled_calls_the_replica_is_free_again(probe: RemoteStage[Order, Report]) -> None:
    """A cancel race must not leave the replica at max_ongoing_requests (ray-project/ray 44644)."""
    for _ in range(10):
        calls = [asyncio.create_task(probe(CTX, Deadline.after(3600), Order("hang"))) for _ in range(12)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    answers = await asyncio.gather(*[probe(CTX, Deadline.after(60), Order()) for _ in range(8)])
    assert len(answers) == 8
    await until(probe, lambda seen: seen.running == 0)


async def test_a_call_whose_replica_dies_is_answered_by_another_one(
    probe: RemoteStage[Order, Report], tmp_path: Path
) -> None:
    """Stages only read, so a call can be made again; once, and never beyond its deadline."""
    deaths = tmp_path / "deaths"
    answer = await probe(CTX, Deadline.after(120), Order("die once", str(deaths)))
    assert deaths.read_text() == "x"
    assert answer.account_id == "acme"


async def test_a_call_that_kills_replicas_is_made_twice_and_no_more(
    probe: RemoteStage[Order, Report], tmp_path: Path
) -> None:
    deaths = tmp_path / "deaths"
    with pytest.raises(StageFailed) as caught:
        await probe(CTX, Deadline.after(120), Order("die", str(deaths)))
    assert caught.value.stage == "probe"
    assert deaths.read_text() == "xx"
    await until(probe, lambda seen: seen.running == 0)


async def test_the_second_try_ends_at_the_deadline_of_the_call(
    probe: RemoteStage[Order, Report], tmp_path: Path
) -> None:
    with pytest.raises(StageTimeout):
        await probe(CTX, Deadline.after(3), Order("die once, then hang", str(tmp_path / "deaths")))
