"""Readiness of a worker pod: its proxy is healthy, and all models have been warm once since the pod started.

``python -m deployments.k8s.probe`` is what the kubelet runs. Only the first readiness waits for every stage: later on
a stage that fails degrades answers, and taking all pods out of the service for it would make an outage of that. An
empty index does not hold it up either, or the first deployment would never take an ingest. Standard library only, since
this starts every few seconds.
"""

import json
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

_TIMEOUT_S = 4
_OK = "ok"
# What searches and reads need; an ingest that is down does not keep them waiting.
WALK = ("planner", "embedder", "seed_search", "expander", "rechecker", "reranker", "assembler", "reader")


def ready(url: str, marker: Path) -> str:
    """Why the pod is not ready; empty when it is.

    Args:
        url: Of the proxy on this node, without a path.
        marker: A file of this pod that says all stages have been warm; made here.
    """
    if not _get(f"{url}/-/healthz"):
        return "The proxy is not up."
    if marker.exists():
        return ""
    try:
        states = json.loads(_get(f"{url}/readyz") or b"{}").get("stages")
    except (ValueError, AttributeError):
        states = None
    if not states:
        return "The ingress does not answer."
    if waiting := [name for name in WALK if states.get(name, _OK) != _OK]:
        return f"Waiting for: {', '.join(waiting)}."
    marker.touch()
    return ""


def _get(url: str) -> bytes:
    """The body, of a 503 too, which ``/readyz`` answers with; nothing when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310 - http on this node
            body: bytes = response.read()
    except urllib.error.HTTPError as error:
        return b"" if url.endswith("/-/healthz") else error.read()
    except OSError:
        return b""
    return body


def main(port: str = "8000") -> int:
    """The exit code: 0 when ready; otherwise the reason goes to standard error."""
    reason = ready(f"http://127.0.0.1:{port}", Path(tempfile.gettempdir(), "strata-warm"))
    if reason:
        print(reason, file=sys.stderr)
    return bool(reason)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
