"""What ``strata bench`` asks and watches: targets, metrics, processes, and how the figures look."""

import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import msgspec
import psutil
import pytest
from rich.console import Console
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from contracts.errors import ConfigError
from contracts.responses import ErrorBody
from contracts.trace import Degradation, Trace
from deployments.cli import bench_watch
from deployments.cli.app import app
from deployments.cli.bench_show import shown
from deployments.cli.bench_targets import over_http
from deployments.cli.bench_watch import Meter, ServiceWatch, exporters
from deployments.cli.client import Client
from deployments.lifecycle import Run
from evaluation.load.config import LoadConfig
from evaluation.load.generator import OK, UNREACHABLE, Reply, Sample
from evaluation.load.quantiles import Quantiles
from evaluation.load.report import Inside, Report, StageTimes, Usage, missed, saturation, step
from tests.support.http_server import serving

TRACE, LACKING = Trace(planner_ms=3, total_ms=9), Degradation("expander", "RET-5041: late", 30)


async def answer(request: Request) -> Response:
    """Stands in for the service: what a query says is what it gets."""
    assert request.headers["authorization"] == "Bearer strata_1_2"
    query = (await request.json())["query"]
    if query == "full":
        body = ErrorBody("r", "RET-4291", "No room.", retryable=True)
        return Response(msgspec.json.encode(body), 429, {"Retry-After": "3"})
    if query == "html":
        return Response("<html>", 502)
    return Response(msgspec.json.encode({"request_id": "r", "trace": TRACE, "degraded": (LACKING,), "hits": ()}))


async def test_answers_and_errors_become_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first query goes through the client of the other commands, which blocks this loop.
    monkeypatch.setattr(Client, "search", lambda self, **body: None)
    service = Starlette(routes=[Route("/v1/search_memory", answer, methods=["POST"])])
    async with serving(service) as url, over_http(url, "strata_1_2", 2, 10, "first") as ask:
        replies = [await ask(query) for query in ("tea", "full", "html")]
    assert replies == [
        Reply(OK, TRACE, (LACKING,)),
        Reply("429 RET-4291", retry_after=3),
        Reply("502 not understood"),
    ]
    async with over_http(url, "strata_1_2", 2, 10, "first") as ask:
        assert await ask("tea") == Reply(UNREACHABLE)


class FakeExporter:
    """Shows another scrape at each look; the last one again and again."""

    def __init__(self, *searches: tuple[int, int, int]) -> None:
        self._left = list(searches)
        self.looks = 0

    async def show(self, request: Request) -> Response:
        """Searches answered, calls of the planner that the chain saw, and that its replica told of."""
        self.looks += 1
        answered, calls, work = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        lines = [
            f'ray_retrieval_search_memory_total{{outcome="ok"}} {answered}',
            f'ray_retrieval_query_cache_count_total{{use="miss"}} {answered}',
        ]
        for name, count in (("stage_ms", calls), ("stage_work_ms", work)):
            lines += [f'ray_retrieval_{name}_bucket{{stage="planner",le="{le}"}} {count}' for le in ("30.0", "+Inf")]
            lines.append(f'ray_retrieval_{name}_count{{stage="planner"}} {count}')
        return PlainTextResponse("\n".join(lines))


async def watched(exporter: FakeExporter, answered: int) -> Inside:
    async with serving(Starlette(routes=[Route("/metrics", exporter.show)])) as url:
        watch = ServiceWatch([f"{url}/metrics"], None)
        await watch.begin()
        return await watch.end(answered)


async def test_figures_wait_until_every_process_has_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes report every ten seconds, each by itself."""
    monkeypatch.setattr(bench_watch, "_LOOK_S", 0.001)
    exporter = FakeExporter((5, 5, 5), (5, 5, 5), (9, 9, 7), (15, 16, 11), (15, 16, 16))
    found = await watched(exporter, 10)
    assert exporter.looks == 5
    assert found.notes == ()
    assert found.stages["planner"].times.count == 11
    assert found.stages["planner"].p95_between == (0.0, 30.0)
    assert found.stages["planner"].work == found.stages["planner"].times
    assert found.cache_hits == 0


async def test_what_never_reports_and_what_others_ask_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_watch, "_SETTLE_S", 0.0)
    (late,) = (await watched(FakeExporter((5, 5, 5), (6, 6, 6)), 10)).notes
    assert "did not report" in late
    (others,) = (await watched(FakeExporter((5, 5, 5), (25, 25, 25)), 10)).notes
    assert "10 searches more" in others


async def test_searches_between_steps_are_waited_for_and_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported late, they would else count in the step after."""
    monkeypatch.setattr(bench_watch, "_LOOK_S", 0.001)
    exporter = FakeExporter((5, 5, 5), (15, 15, 15), (16, 16, 16))
    async with serving(Starlette(routes=[Route("/metrics", exporter.show)])) as url:
        watch = ServiceWatch([f"{url}/metrics"], None)
        await watch.begin()
        watch.expect(1)
        found = await watch.end(10)
    assert exporter.looks == 3
    assert found.notes == ()


async def test_metrics_that_cannot_be_had_are_an_error_with_a_remedy() -> None:
    async with serving(Starlette()) as url:
        with pytest.raises(ConfigError) as error:
            await ServiceWatch([f"{url}/metrics"], None).begin()
    assert error.value.field == "metrics"


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[psutil.Process]:
    """A process that computes, and looks like one of Ray's."""
    code = "print(flush=True)\nwhile True: pass"
    arguments = ["ray::ServeReplica:strata:planner", "-c", code, f"--session_dir={tmp_path}"]
    with subprocess.Popen(
        arguments, executable=sys.executable, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout
        child.stdout.readline()
        yield psutil.Process(child.pid)
        child.kill()


def test_cpu_and_memory_are_those_of_the_services_processes(busy: psutil.Process) -> None:
    meter = Meter(lambda: [busy])
    meter.begin()
    used = sum(busy.cpu_times()[:2])
    while sum(busy.cpu_times()[:2]) < used + 0.1:
        pass
    usage = meter.end()
    assert usage
    assert usage.cores_by_process == {"planner": usage.cores}
    assert 0 < usage.cores < 1.5
    assert usage.memory_mb > 1
    assert meter.memory() == {"planner": pytest.approx(usage.memory_mb, rel=0.2)}


def test_a_process_that_ended_takes_nothing() -> None:
    meter = Meter(list)
    meter.begin()
    assert meter.end() is None
    assert meter.memory() == {}


def test_the_port_of_the_metrics_is_that_of_the_running_service_or_of_the_settings(
    busy: psutil.Process, tmp_path: Path
) -> None:
    run = Run(busy.pid, busy.create_time(), "http://127.0.0.1:8000", "", "")
    file = tmp_path / "metrics_export_port_1f"
    assert exporters(run, "http://127.0.0.1:8000", 9000) == ["http://127.0.0.1:9000/metrics"]
    file.write_text("-1")
    assert exporters(run, "http://127.0.0.1:8000", None) == []
    file.write_text("4711")
    assert exporters(run, "http://127.0.0.1:8000", None) == ["http://127.0.0.1:4711/metrics"]
    assert exporters(None, "https://strata.example/", 9000) == ["http://strata.example:9000/metrics"]
    assert exporters(None, "http://127.0.0.1:8000", None) == []


def test_the_table_shows_steps_stages_saturation_and_misses() -> None:
    limits = LoadConfig()
    seen = StageTimes(Quantiles(40, 12, 34, 35), (30.0, 40.0), Quantiles(40, 11, 32, 33))
    inside = Inside({"planner": seen}, Quantiles(40, 60, 80, 90), 0.5, Usage(1.5, 2048))
    good, bad = (
        [Sample(1, ms, number / 20 + ms / 1000, Reply(code, TRACE, (LACKING,))) for number in range(40)]
        for ms, code in ((70, OK), (20, "429 RET-4291"))
    )
    steps = (step(20, 2, good, inside, 0.2, limits), step(40, 2, bad, Inside(), 0.2, limits))
    told = ("A note.",)
    report = Report("http://x", "poisson", 2, 240, 0, steps, saturation(steps), missed(steps, limits), told)
    console = Console(width=120, file=StringIO())
    console.print(shown(report, limits))
    text = console.file.getvalue()
    for part in (
        "12.0 · 34.0 · 35.0 (32.0)",
        "20/s degraded: 40 expander RET-5041",
        "40/s failed: 40 429 RET-4291",
        "Saturated at 20/s; nothing less was tried.",
        "✗ 20/s: P95 of planner 34.0 > 30 ms, degraded 100.0% > 1.0%",
        "P95 of search_memory unknown",
        "⚠ A note.",
    ):
        assert part in text


@pytest.mark.parametrize("rates", ["", "x", "0", "5,-1", "nan", "inf"])
def test_a_rate_that_is_none_is_refused(rates: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"data_dir: {tmp_path}", encoding="utf-8")
    done = CliRunner().invoke(app, ["bench", "--rates", rates, "--key", "k", "--config", str(config)])
    assert done.exit_code == 2
    assert "5,10,20" in done.output


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("ray::ServeReplica:strata:planner", "planner"),
        ("ray::ServeReplica:strata:seed_search.check_health", "seed_search"),
        ("ray::ServeController.listen_for_change", "ServeController"),
        ("ray::ProxyActor", "ProxyActor"),
    ],
)
def test_a_process_has_one_name_whatever_it_does_at_the_moment(title: str, name: str) -> None:
    """Issue 9, point 3: memory is followed by name, and one that changes would be followed in pieces."""
    assert bench_watch.name_of(title) == name
