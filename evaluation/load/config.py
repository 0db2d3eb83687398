"""What a load test must show."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contracts.trace import STAGES

# Names the whole search among the stages.
SEARCH = "search_memory"
# C40.
_P95_MS = {
    "planner": 30.0,
    "seed_search": 120.0,
    "expander": 100.0,
    "rechecker": 50.0,
    "assembler": 40.0,
    SEARCH: 300.0,
}


class LoadConfig(BaseModel):
    """Limits that ``strata bench`` holds every step of load against."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    p95_ms: dict[str, float] = Field(
        _P95_MS, description="Budgets of C40 by stage, and of the whole search; what is not named has none."
    )
    max_failed: float = Field(
        0.01, ge=0, le=1, description="Share of searches that may fail; quick refusals would else look like speed."
    )
    max_degraded: float = Field(
        0.01, ge=0, le=1, description="Share that may lack a stage, for a stage given up is in no histogram."
    )
    keeps_up: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Answers that lack nothing for each arrival; with fewer a step counts as saturated.",
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        if unknown := sorted(self.p95_ms.keys() - {*STAGES, SEARCH}):
            raise ValueError(f"p95_ms names {', '.join(unknown)}, which no stage is called")
        return self
