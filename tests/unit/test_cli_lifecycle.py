"""The local service as processes: state file, staleness, stopping everything."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from contracts.errors import ConfigError
from deployments.lifecycle import Run, Service

READY = """
import http.server, subprocess, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503); self.end_headers()
        self.wfile.write(b'{"ready": false, "stages": {"planner": "ok"}, "reason": "The index is empty."}')
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Ready)
# A worker in a process group of its own that ignores SIGTERM: a stand-in for what an abandoned proxy looks like.
subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"],
    process_group=0)
open(sys.argv[1], "w").write(str(server.server_port))
server.serve_forever()
"""


def until(condition: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "run")
    yield service
    if run := service.last():
        service.stop(run, grace=0)


def start(service: Service, *command: str, detach: bool = True) -> Run:
    return service.start([sys.executable, *command], url="http://127.0.0.1:9", config="c.yaml", detach=detach)


def start_fake_service(service: Service, tmp_path: Path) -> Run:
    port = tmp_path / "port"
    run = start(service, "-c", READY, str(port))
    until(lambda: port.exists() and port.read_text() and len(run.processes()) == 2)
    return msgspec.structs.replace(run, url=f"http://127.0.0.1:{port.read_text()}")


def test_a_started_service_is_found_by_its_state_file(service: Service, tmp_path: Path) -> None:
    run = start_fake_service(service, tmp_path)
    assert service.wait_up(run, timeout=30).reason == "The index is empty."
    found = Service(tmp_path / "run").current()
    assert found is not None
    assert found.pid == run.pid
    assert found.is_alive()


def test_the_state_file_is_for_its_owner_only(service: Service, tmp_path: Path) -> None:
    start(service, "-c", "input()")
    assert (tmp_path / "run" / "service.json").stat().st_mode & 0o777 == 0o600


def test_stopping_leaves_no_process_even_of_workers_that_ignore_sigterm(service: Service, tmp_path: Path) -> None:
    run = start_fake_service(service, tmp_path)
    processes = run.processes()
    service.stop(run, grace=10)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    assert run.processes() == []
    assert service.last() is None


def test_workers_whose_leader_was_killed_are_still_found_and_stopped(service: Service, tmp_path: Path) -> None:
    run = start_fake_service(service, tmp_path)
    os.kill(run.pid, 9)
    until(lambda: not run.is_alive())
    assert service.current() is None
    assert len(run.processes()) == 1
    service.stop(run, grace=10)
    assert run.processes() == []


def test_a_second_start_is_refused_and_names_the_first(service: Service, tmp_path: Path) -> None:
    run = start_fake_service(service, tmp_path)
    with pytest.raises(ConfigError, match=str(run.pid)) as error:
        start(service, "-c", "input()")
    assert "strata down" in error.value.remedy


def test_a_start_clears_what_a_dead_service_left(service: Service, tmp_path: Path) -> None:
    first = start_fake_service(service, tmp_path)
    os.kill(first.pid, 9)
    until(lambda: not first.is_alive())
    second = start(service, "-c", "import time; time.sleep(600)")
    assert first.processes() == []
    assert second.is_alive()


def test_a_process_that_got_the_same_id_later_is_not_the_service(service: Service) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        started = psutil.Process(other.pid).create_time()
        stale = Run(other.pid, started - 60, "http://127.0.0.1:9", "c.yaml", "log")
        assert not stale.is_alive()
        assert stale.processes() == []
        service.stop(stale, grace=1)
        assert other.poll() is None
    finally:
        other.kill()
        other.communicate()


def test_a_service_that_stops_while_it_starts_shows_the_end_of_its_log_without_tracebacks(service: Service) -> None:
    fault = "import traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()\nraise SystemExit('no such model')"
    run = start(service, "-c", fault)
    with pytest.raises(ConfigError, match="no such model") as error:
        service.wait_up(run, timeout=30)
    assert "Traceback" not in error.value.message
    assert run.log in error.value.remedy


def test_a_service_that_is_not_up_in_time_is_an_error(service: Service) -> None:
    run = start(service, "-c", "import time; time.sleep(600)")
    with pytest.raises(ConfigError, match="not up"):
        service.wait_up(run, timeout=0.3)


def test_an_attached_service_sees_its_input_end_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from deployments.lifecycle import Service
run = Service(Path({str(tmp_path)!r})).start(
    [sys.executable, "-c", "import sys; sys.stdin.read()"], url="", config="", detach=False)
assert run.is_alive()
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    run = Service(tmp_path).last()
    assert run is not None
    until(lambda: not run.is_alive())


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]"])
def test_a_state_file_that_cant_be_understood_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "service.json").write_text(content)
    assert Service(tmp_path).current() is None
