"""A real Prometheus for tests, from Debian's package, on a free port and in a folder of its own.

Without it the tests that need it are skipped, or fail where STRATA_TESTS_NEED_PROMETHEUS is 1 (in CI).
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deployments.lifecycle import free_port

_READY_SECONDS = 60


class Prometheus:
    """A running server.

    Args:
        url: Where it answers.
    """

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        return self._get("query", query=expression)["result"]

    def trouble(self) -> str:
        """Why the last scrapes of its targets failed; empty when they did not."""
        return "; ".join(filter(None, (target["lastError"] for target in self._get("targets")["activeTargets"])))

    def rules(self) -> list[dict[str, Any]]:
        """All rules that it evaluates."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **params: str) -> Any:
        answer = self._http.get(f"/api/v1/{path}", params=params).json()
        assert answer["status"] == "success", answer
        return answer["data"]


@pytest.fixture(scope="session")
def prometheus_tools() -> dict[str, str]:
    """The programs of the package, by name."""
    found = {name: shutil.which(name) for name in ("prometheus", "promtool")}
    if missing := [name for name, path in found.items() if path is None]:
        unmet = pytest.fail if os.environ.get("STRATA_TESTS_NEED_PROMETHEUS") == "1" else pytest.skip
        unmet(f"There is no {' and no '.join(missing)} here. apt-get install prometheus")
    return {name: path for name, path in found.items() if path}


@contextmanager
def prometheus(program: str, folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """A server that scrapes one target and evaluates rules; stopped at the end.

    Args:
        program: Its binary.
        folder: For its data; empty.
        target: Host and port.
        rules: The rule file.
    """
    # Ray's exporter takes a second to answer, and more with each graph that there was on the cluster.
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "strata", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        server, deadline = Prometheus(f"http://{address}"), time.monotonic() + _READY_SECONDS
        while not server.ready():
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text(encoding="utf-8")
        yield server
    finally:
        process.terminate()
        process.wait()
