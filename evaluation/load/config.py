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


class OverloadConfig(BaseModel):
    """What must hold when more comes than the service can answer, and what must not grow."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_answers: float = Field(
        0.8, ge=0, le=1, description="Answers a second under overload, of those at saturation; refusing is easy."
    )
    refused_p95_ms: float = Field(
        100.0, gt=0, description="P95 of a refusal; a late one costs its caller the time to ask elsewhere."
    )
    back_within: float = Field(
        1.25, ge=1, description="Afterwards the median is back once it is within so many times what it was before."
    )
    back_s: float = Field(10.0, gt=0, description="How soon after the burst that must be.")
    max_growth: float = Field(
        0.05, gt=0, description="Growth of a process' memory over a soak, of what it had; caches are full by then."
    )
    slack_mb: float = Field(
        5.0, ge=0, description="Growth that is none, for small processes: a few pages are 5% of theirs."
    )
    settle: float = Field(
        0.2, ge=0, lt=0.9, description="Part of a soak at its beginning that does not count: caches fill."
    )


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
    overload: OverloadConfig = OverloadConfig()

    @model_validator(mode="after")
    def _known(self) -> Self:
        if unknown := sorted(self.p95_ms.keys() - {*STAGES, SEARCH}):
            raise ValueError(f"p95_ms names {', '.join(unknown)}, which no stage is called")
        return self
