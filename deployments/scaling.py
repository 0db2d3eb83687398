"""How many replicas a deployment needs."""

from typing import Any

from ray.serve.config import AutoscalingContext

# Calls under way that Serve did not route, as replicas report them.
BY_WIRE = "by_wire"


def by_calls(ctx: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """As many as bring the calls of each to ``target_ongoing_requests``; an autoscaling policy of Serve.

    Serve's own counts what its handles have under way, and this one beside that what comes by the wire or by the
    ingress's own door. Serve applies the delays and bounds of the settings.

    Args:
        ctx: Of Serve.

    Returns:
        The number, and nothing to remember.
    """
    reported = (ctx.aggregated_metrics or {}).get(BY_WIRE, {})
    return (ctx.total_num_requests + sum(reported.values())) / ctx.config.get_target_ongoing_requests(), {}
