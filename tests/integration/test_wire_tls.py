"""A real Ray cluster whose traffic goes by TLS: the wire's does, too."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ray.util import get_node_ip_address

from tests.support.certificates import Authority, ray_tls

ROOT = Path(__file__).parents[2]


def test_where_ray_uses_tls_calls_of_a_stage_do(tmp_path: Path) -> None:
    node = Authority(tmp_path / "authority").certify(get_node_ip_address(), "127.0.0.1")
    # A cluster of its own, not that of the session.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.tls_child", str(tmp_path / "said.json")],
        env=inherited | ray_tls(node),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    said = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    assert said == {"account": "acme", "cipher": "TLSv1.3"}
