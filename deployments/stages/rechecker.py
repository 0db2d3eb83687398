"""The rechecker's deployment."""

from contracts.stages import RecheckRequest, RecheckResult
from deployments.stages.indexed import IndexedReplica
from stages.rechecker import Rechecker, RecheckerConfig


class RecheckerReplica(IndexedReplica[RecheckRequest, RecheckResult]):
    """The rechecker."""

    name = "rechecker"
    request_type = RecheckRequest

    def build(self, config: RecheckerConfig) -> Rechecker:
        """The stage."""
        return Rechecker(self.index, config)
