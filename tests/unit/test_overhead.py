"""What ``strata bench overhead`` makes of times; and stages that do nothing but answer as the real ones did."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from contracts.deadline import Deadline
from contracts.requests import SearchMemoryRequest
from contracts.stages import PlanRequest
from contracts.trace import STAGES
from deployments.cli.bench_overhead import shown
from deployments.overhead.empty import Recorder, emptied
from deployments.overhead.report import Burst, Report, figures
from deployments.overhead.run import own
from deployments.settings import parse
from deployments.stages.planner import PlannerReplica
from deployments.transport import decode_reply, encode_call
from stages.chain import Chain, ChainConfig
from tests.support.chain import CTX, RECORDS, stages
from tests.support.fake_index import FakeIndex

CHAIN = [Burst([2.0, 4.0], 0.1, {"this process": 0.004}), Burst([3.0], 0.1, {"this process": 0.002})]
GRAPH = [Burst([9.0, 6.0], 0.2, {"planner": 0.004}), Burst([5.0], 0.1, {"planner": 0.002, "ingress": 0.003}, lacking=1)]


def test_a_graph_is_held_against_the_chain_in_one_process() -> None:
    found = figures("graph", 1, GRAPH, CHAIN)
    assert (found.requests, found.p50_ms, found.overhead_ms, found.ratio) == (3, 6.0, 3.0, 2.0)
    assert found.per_s == 10.0
    assert found.cpu_ms_by_process == {"planner": 2.0, "ingress": 1.0}
    assert found.cpu_ms == 3.0
    assert found.lacking == 1


def test_the_chain_in_one_process_is_no_slower_than_itself() -> None:
    found = figures("chain", 1, CHAIN, CHAIN)
    assert (found.overhead_ms, found.ratio) == (0.0, 1.0)


def test_the_table_names_every_contestant_and_what_travels(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(3, 40, (figures("the graph", 8, GRAPH, CHAIN),), {"planner": (1234, 56)})
    Console(width=120).print(shown(report))
    table = capsys.readouterr().out
    assert "the graph" in table
    assert "1,234" in table


def test_nothing_is_refused_and_nothing_degrades_early(tmp_path: Path) -> None:
    """Both are quick, and would look like speed."""
    given = parse({"data_dir": "mine", "chain": {"timeout_ms": 5}, "stages": {"colocate": ["planner"]}})
    settings = own(given, tmp_path)
    assert settings.limits.admission.target_ms is None
    assert min(settings.chain.timeout_ms, *(each.budget_ms for each in settings.chain.budgets.values())) >= 30_000
    assert settings.data_dir.is_relative_to(tmp_path)
    assert settings.stages == given.stages


@pytest.fixture
async def recorder() -> Recorder:
    """Of two searches, of which one looked twice."""
    recorder = Recorder()
    chain = Chain(recorder.watched(stages(FakeIndex(RECORDS))), ChainConfig())
    await chain.search(CTX, SearchMemoryRequest(query="deploy guide", top_k=1))
    await chain.search(CTX, SearchMemoryRequest(query="how to rollback", top_k=50))
    return recorder


async def test_a_query_that_took_two_rounds_is_not_plain(recorder: Recorder) -> None:
    assert recorder.plain() == {"deploy guide"}
    assert recorder.sizes().keys() == set(STAGES)
    assert all(call > 0 and reply > 0 for call, reply in recorder.sizes().values())


async def test_an_emptied_stage_answers_over_the_wire_what_the_real_one_did(recorder: Recorder) -> None:
    kind = emptied(recorder.answers)(PlannerReplica)
    replica = kind.__new__(kind)
    await replica.__init__()  # type: ignore[misc]  # as Serve does
    reply = await replica(encode_call(CTX, Deadline.after(5), PlanRequest("deploy guide", 1)))
    plan = recorder.answers["planner"]["deploy guide"]
    assert decode_reply(reply, msgspec.msgpack.Decoder(type(plan))) == plan
