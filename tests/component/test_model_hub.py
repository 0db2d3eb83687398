"""The hub's own client against a hub on this machine, in a process of its own so that its settings are fresh."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"# tiny",
    "config.json": b"{}",
    "tokenizer.json": b'{"tiny": true}',
    "onnx/model.onnx": b"full",
    "onnx/model_quantized.onnx": b"quantised",
}
SCRIPT = """
import json, sys
from pathlib import Path
from contracts.errors import ConfigError
from models.resolve import resolve
try:
    found = resolve("someone/tiny", backend="onnx", cache_dir=Path(sys.argv[1]))
    names = sorted(p.relative_to(found.folder).as_posix() for p in found.folder.rglob("*") if p.is_file())
    print(json.dumps({"weights": found.weights.read_text(), "names": names, "precision": found.precision}))
except ConfigError as error:
    print(json.dumps({"error": error.message}))
"""


class FakeHub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as a download needs."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/someone/tiny/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in FILES.items()
            ]
            self.answer(json.dumps(entries).encode())
        elif path.startswith("/api/models/someone/tiny"):
            siblings = [{"rfilename": name} for name in FILES]
            self.answer(json.dumps({"id": "someone/tiny", "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith(f"/someone/tiny/resolve/{COMMIT}/"):
            self.answer(FILES[path.split(f"{COMMIT}/")[1]])
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[str, list[str]]]:
    FakeHub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", FakeHub.asked
    server.shutdown()
    server.server_close()


def resolve_in_a_new_process(endpoint: str, home: Path) -> dict[str, object]:
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(home / "packages")],
        env={k: v for k, v in os.environ.items() if not k.startswith("HF_")} | settings,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_a_model_of_the_hub_is_downloaded_without_what_it_does_not_need_and_then_found_here(
    tmp_path: Path, hub: tuple[str, list[str]]
) -> None:
    endpoint, asked = hub
    expected = {
        "weights": "quantised",
        "names": ["config.json", "onnx/model_quantized.onnx", "tokenizer.json"],
        "precision": "int8",
    }
    assert resolve_in_a_new_process(endpoint, tmp_path) == expected
    assert asked
    asked.clear()
    assert resolve_in_a_new_process(endpoint, tmp_path) == expected
    assert asked == []


def test_a_hub_that_accepts_and_never_answers_is_given_up(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as silent:
        # It listens, so connections are accepted; nothing ever serves them.
        answer = resolve_in_a_new_process(f"http://127.0.0.1:{silent.server_port}", tmp_path)
    assert "can't be reached (ReadTimeout)" in str(answer["error"])
