"""When a worker pod takes requests."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from contracts.trace import STAGES
from deployments.k8s.probe import WALK, ready

OK = dict.fromkeys(WALK, "ok")


class FakeProxy:
    """Answers as a node's proxy would: its own health, and what the ingress says."""

    def __init__(self) -> None:
        self.healthy = True
        self.readyz: tuple[int, Any] = (200, {"ready": True, "stages": OK})
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                health = self.path == "/-/healthz"
                status, body = (200 if fake.healthy else 503, "x") if health else fake.readyz
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def proxy() -> Any:
    fake = FakeProxy()
    yield fake
    fake.close()


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "warm"


def test_it_waits_for_the_proxy(proxy: FakeProxy, marker: Path) -> None:
    proxy.healthy = False
    assert ready(proxy.url, marker) == "The proxy is not up."
    proxy.close()
    assert ready(proxy.url, marker) == "The proxy is not up."


def test_it_waits_for_every_stage_and_names_those_that_are_missing(proxy: FakeProxy, marker: Path) -> None:
    proxy.readyz = (503, {"ready": False, "stages": OK | {"embedder": "The stage did not answer."}})
    assert ready(proxy.url, marker) == "Waiting for: embedder."
    assert not marker.exists()


@pytest.mark.parametrize("answer", [(503, {"ret_code": "RET-5031"}), (200, [1]), (500, "broken")])
def test_an_answer_that_is_not_the_ingress_s_is_none(answer: Any, proxy: FakeProxy, marker: Path) -> None:
    proxy.readyz = answer
    assert ready(proxy.url, marker) == "The ingress does not answer."


def test_an_empty_index_and_an_ingest_that_is_down_hold_nothing_up(proxy: FakeProxy, marker: Path) -> None:
    proxy.readyz = (503, {"ready": False, "stages": OK | {"ingest": "down"}, "reason": "The index is empty."})
    assert ready(proxy.url, marker) == ""


def test_once_warm_a_stage_that_fails_takes_no_pod_out_but_a_dead_proxy_does(proxy: FakeProxy, marker: Path) -> None:
    assert ready(proxy.url, marker) == ""
    proxy.readyz = (503, {"ready": False, "stages": OK | {"embedder": "down"}})
    assert ready(proxy.url, marker) == ""
    proxy.healthy = False
    assert ready(proxy.url, marker) == "The proxy is not up."


def test_it_knows_the_stages_of_both_walks() -> None:
    """The probe imports nothing of ours, for it starts every few seconds."""
    assert (*STAGES, "reader") == WALK
