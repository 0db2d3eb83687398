"""How many replicas calls need, wherever they come from."""

from typing import Any

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from deployments.scaling import BY_WIRE, by_calls

STAGE = DeploymentID("planner", "retrieval")
REPLICAS = [ReplicaID("one", STAGE), ReplicaID("two", STAGE)]


def context(by_handle: float, metrics: Any) -> AutoscalingContext:
    """What Serve gives a policy."""
    return AutoscalingContext(
        deployment_id=STAGE,
        deployment_name=STAGE.name,
        app_name=STAGE.app_name,
        current_num_replicas=2,
        target_num_replicas=2,
        running_replicas=REPLICAS,
        total_num_requests=lambda: by_handle,
        total_queued_requests=None,
        aggregated_metrics=metrics,
        raw_metrics=None,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=10,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=None,
        config=AutoscalingConfig(target_ongoing_requests=4),
    )


def test_calls_by_handle_and_by_wire_count_alike() -> None:
    by_wire = dict(zip(REPLICAS, (7.0, 3.0), strict=True))
    assert by_calls(context(6, lambda: {BY_WIRE: by_wire, "other": {REPLICAS[0]: 100.0}})) == (4, {})


@pytest.mark.parametrize("metrics", [None, {}, {BY_WIRE: {}}, {"other": {REPLICAS[0]: 100.0}}], ids=str)
def test_while_no_replica_has_reported_calls_by_handle_count_alone(metrics: Any) -> None:
    assert by_calls(context(6, metrics)) == (1.5, {})


def test_without_calls_none_is_needed() -> None:
    assert by_calls(context(0, {BY_WIRE: dict.fromkeys(REPLICAS, 0.0)})) == (0, {})
