"""A stage on a Ray cluster of its own that speaks TLS: ``python -m tests.support.tls_child FILE``.

Ray reads ``RAY_USE_TLS`` once a process, so this is one. The file then says what a call by the wire came to.
"""

import asyncio
import json
import sys
from pathlib import Path

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from contracts.deadline import Deadline
from deployments.transport import RemoteStage
from deployments.wire.places import Places
from tests.support.probe import CTX, Order, Probe, Report


async def call() -> dict[str, object]:
    """Call the stage, and tell how."""
    stage = RemoteStage[Order, Report](DeploymentHandle("probe", "tls"), Report)
    await stage.connect()
    line = stage._lines.best()
    assert line and line._transport
    report = await stage(CTX, Deadline.after(30), Order())
    return {"account": report.account_id, "cipher": line._transport.get_extra_info("cipher")[1]}


def main() -> None:
    """Start, call, stop."""
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    app = serve.deployment(Probe).options(name="probe", ray_actor_options={"num_cpus": 0.1})
    serve.run(app.bind(places=Places(8, 8)), name="tls", route_prefix=None)
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(call())), encoding="utf-8")
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
