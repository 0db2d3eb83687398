"""``strata up``, ``down``, ``status`` and ``demo`` where no service runs."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployments.cli.app import app


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def strata(folder: Path, *arguments: str, **settings: object) -> Result:
    config = folder / "config.yaml"
    embedder = {"backend": "deterministic", "dimensions": 16}
    config.write_text(json.dumps({"data_dir": str(folder / "data"), "embedder": embedder, **settings}))
    done = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    assert "Traceback" not in done.stderr
    return done


def test_status_exits_with_1_while_the_service_is_down(tmp_path: Path) -> None:
    done = strata(tmp_path, "status", "--json")
    assert done.exit_code == 1
    status = json.loads(done.stdout)
    assert not status["running"]
    assert status["index"] == {}


def test_status_shows_the_index_though_the_service_is_down(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": 1, "text": "one"}\n')
    strata(tmp_path, "ingest", str(records))
    assert "1 record" in strata(tmp_path, "status").stdout


@pytest.mark.parametrize(
    ("elastic", "why"),
    [({}, "strata es start"), ({"connection": {"hosts": ["http://127.0.0.1:1"]}}, "no connection")],
)
def test_status_says_why_an_elasticsearch_index_can_not_be_looked_at(
    tmp_path: Path, elastic: dict[str, object], why: str
) -> None:
    index = {"backend": "elasticsearch", "elastic": elastic}
    shown = strata(tmp_path, "status", index=index)
    assert shown.exit_code == 1
    assert why in shown.stdout
    assert why in json.loads(strata(tmp_path, "status", "--json", index=index).stdout)["index_reason"]


def test_down_without_a_service_is_no_error(tmp_path: Path) -> None:
    done = strata(tmp_path, "down")
    assert done.exit_code == 0
    assert "No service was started" in done.stdout


def test_a_port_in_use_is_told_before_anything_is_started(tmp_path: Path, busy_port: int) -> None:
    done = strata(tmp_path, "up", "--detach", "--port", str(busy_port))
    assert done.exit_code == 1
    assert str(busy_port) in done.stderr
    assert "--port" in done.stderr
    assert not (tmp_path / "data" / "run" / "service.json").exists()


def test_a_demo_that_cant_start_says_why(tmp_path: Path, busy_port: int) -> None:
    done = strata(tmp_path, "demo", "--port", str(busy_port))
    assert done.exit_code == 1
    assert str(busy_port) in done.stderr
