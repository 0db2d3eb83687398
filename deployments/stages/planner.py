"""The planner's deployment."""

from contracts.stages import Plan, PlanRequest
from deployments.stages.base import StageReplica
from stages.planner import Planner, PlannerConfig


class PlannerReplica(StageReplica[PlanRequest, Plan]):
    """The planner."""

    name = "planner"
    request_type = PlanRequest

    async def open(self, config: PlannerConfig) -> Planner:
        """Nothing to warm up."""
        return Planner(config)
