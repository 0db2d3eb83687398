"""The deployment of the ledger: one replica for the whole graph, off the path of most requests."""

from contracts.context import RequestContext
from contracts.deadline import Deadline
from deployments.limits.config import LimitsSettings
from deployments.limits.ledger import Ledger
from deployments.limits.messages import LeaseReply, LeaseRequest
from deployments.stages.base import StageReplica


class LimitsReplica(StageReplica[LeaseRequest, LeaseReply]):
    """Holds the ledger and speaks the transport of the stages."""

    name = "limits"
    request_type = LeaseRequest

    async def open(self, settings: LimitsSettings) -> "_Served":
        """Start with an empty ledger."""
        return _Served(Ledger(settings))


class _Served:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: LeaseRequest, /) -> LeaseReply:
        return self._ledger.lease(request)
