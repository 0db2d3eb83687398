"""The expander's deployment."""

from contracts.stages import ExpandRequest, ExpandResult
from deployments.stages.indexed import RecallReplica
from stages.expander import Expander, ExpanderConfig
from stages.scoring import ScoringConfig


class ExpanderReplica(RecallReplica[ExpandRequest, ExpandResult]):
    """The expander."""

    name = "expander"
    request_type = ExpandRequest

    def build(self, config: ExpanderConfig, scoring: ScoringConfig) -> Expander:
        """The stage."""
        return Expander(self.index, config, scoring)
