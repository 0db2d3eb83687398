"""The seed search's deployment."""

from contracts.records import ModelRef
from contracts.stages import SeedRequest, SeedResult
from deployments.stages.indexed import RecallReplica
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig


class SeedSearchReplica(RecallReplica[SeedRequest, SeedResult]):
    """The seed search."""

    name = "seed_search"
    request_type = SeedRequest

    def build(self, config: SeedSearchConfig, scoring: ScoringConfig) -> SeedSearch:
        """The stage."""
        return SeedSearch(self.index, config, scoring)

    async def describe(self) -> ModelRef | None:
        """The model of the index's vectors; ``None`` while it is empty."""
        return await self.index.model()
