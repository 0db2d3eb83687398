"""A real Prometheus scrapes the running graph: after traffic every rule and every query of the dashboard has data."""

import asyncio
import math
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from contracts.trace import STAGES
from deployments.monitoring.dashboard import queries
from deployments.monitoring.render import RULES, rule_groups
from tests.integration.conftest import Cluster, eventually
from tests.support.memories import uri
from tests.support.prometheus import Prometheus, prometheus

ROOT = Path(__file__).parents[2]
ALERTS = {rule["alert"] for group in rule_groups(ROOT) for rule in group["rules"] if "alert" in rule}
NOODLES = {"exclude_terms": ["noodles"], "context_types": ["memory"]}


def promtool(program: str, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_sound(prometheus_tools: dict[str, str]) -> None:
    assert "SUCCESS" in promtool(prometheus_tools["promtool"], "check", "rules", "--lint=all", str(RULES))


def test_every_alert_fires_when_it_should_and_only_then(prometheus_tools: dict[str, str]) -> None:
    """The cases of rules.test.yaml, which has each alert firing, and each silent."""
    cases = RULES.with_name("rules.test.yaml")
    promtool(prometheus_tools["promtool"], "test", "rules", str(cases))
    tests = yaml.safe_load((ROOT / cases).read_text(encoding="utf-8"))["tests"]
    told = [case for test in tests for case in test.get("alert_rule_test", ())]
    assert {case["alertname"] for case in told if case.get("exp_alerts")} == ALERTS
    assert {case["alertname"] for case in told if not case.get("exp_alerts")} == ALERTS


@pytest.fixture(scope="module")
def watching(
    prometheus_tools: dict[str, str], cluster: Cluster, served: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus that watches the graph."""
    folder, target = tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{cluster.metrics_port}"
    with prometheus(prometheus_tools["prometheus"], folder, target, ROOT / RULES) as server:
        yield server


class Traffic:
    """Requests of every kind.

    Args:
        alice: May search and read.
        user: May write to corpora, and search the knowledge base.
        nobody: Sends no key.
    """

    def __init__(self, alice: httpx.AsyncClient, user: httpx.AsyncClient, nobody: httpx.AsyncClient) -> None:
        self._alice = alice
        self._user = user
        self._nobody = nobody
        self._hurry = 0

    async def round(self) -> None:
        """One of each."""
        search, read = "/v1/search_memory", "/v1/read_memory"
        # So little time that some stage has to be given up, here or there.
        self._hurry = self._hurry % 20 + 1
        session = {"session_id": f"s-{uuid.uuid4().hex}"}
        page = {"url": "https://www.example.org/tea", "title": "Tea", "content": "Green tea is grown around Hangzhou."}
        retrieve = {"query": "green tea", "dimensions": session, "threshold": 0}
        # Another user each time: one who guesses again and again is throttled.
        wrong = {"user_id": uuid.uuid4().hex, "user_key": "a guess", "query": "tea"}
        await asyncio.gather(
            self._sent(self._alice, 200, search, query="backup of the index", score_threshold=0.9),
            self._sent(self._alice, 200, search, query="noodles coffee", planner_hints=NOODLES),
            self._sent(self._alice, 200, search, query="run a command", timeout_ms=self._hurry),
            self._sent(self._alice, 400, search, query=" "),
            *(
                self._sent(self._alice, 200, read, uri=uri("shared", "python/run"), level=level)
                for level in ("L1", "L2")
            ),
            self._sent(self._nobody, 401, search, query="noodles"),
            self._sent(self._nobody, 401, "/memories/search", **wrong),
            self._sent(self._user, 200, "/v1/corpora/web/ingest?wait_ms=60000", **session, pages=[page]),
            self._sent(self._user, 200, "/v1/kb/search", query_text="what nobody has written of"),
        )
        for _ in range(2):
            await self._sent(self._user, 200, "/v1/corpora/web/retrieve", **retrieve)

    async def burst(self) -> None:
        """More searches at once than there are places for."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self._alice.base_url, headers=self._alice.headers, timeout=90, limits=limits
        ) as many:
            statuses = {200}
            while statuses == {200}:
                sent = (many.post("/v1/search_memory", json={"query": "noodles"}) for _ in range(300))
                statuses = {response.status_code for response in await asyncio.gather(*sent)}
        assert statuses == {200, 429}

    @staticmethod
    async def _sent(client: httpx.AsyncClient, status: int, path: str, **body: object) -> None:
        response = await client.post(path, json=body)
        assert response.status_code == status, response.text


@pytest.fixture(scope="module")
async def traffic(client: Callable[..., httpx.AsyncClient], alice: httpx.AsyncClient, served: str) -> Traffic:
    user = client("corpora", user_space="user:alice", spaces=("kb",))
    nobody = client()
    nobody.headers.pop("authorization")
    return Traffic(alice, user, nobody)


def known(server: Prometheus, expression: str) -> bool:
    """Whether an expression has a value that is a number."""
    return any(not math.isnan(float(series["value"][1])) for series in server.query(expression))


async def test_after_traffic_every_rule_and_every_query_of_the_dashboard_has_data(
    watching: Prometheus, traffic: Traffic
) -> None:
    """D2, C41, R7."""
    recorded = {rule["record"] for group in rule_groups(ROOT) for rule in group["rules"] if "record" in rule}
    waiting = {*recorded, *queries()}
    await traffic.burst()

    async def complete() -> bool:
        await traffic.round()
        waiting.difference_update([each for each in waiting if known(watching, each)])
        return not waiting

    try:
        await asyncio.wait_for(eventually(complete), 200)
    except TimeoutError:
        pytest.fail("\n".join([f"No data; scrapes: {watching.trouble() or 'well'}", *sorted(waiting)]))
    assert {rule["name"] for rule in watching.rules()} == recorded | ALERTS
    assert {rule["health"] for rule in watching.rules()} == {"ok"}
    # What the traffic was like shows in the values.
    stages = {series["metric"]["stage"] for series in watching.query("retrieval:stage:p95_ms > 0")}
    assert stages == {*STAGES, "reader"}
    assert {series["metric"]["corpus"] for series in watching.query("retrieval:corpus:hit:ratio_rate5m > 0")} == {"web"}
    assert watching.query("retrieval:search_memory:degraded:ratio_rate5m > 0")
    assert {series["value"][1] for series in watching.query("retrieval:index:up")} == {"1"}
