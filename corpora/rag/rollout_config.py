"""What can be set about which path answers a corpus (R8), where the database says nothing."""

from pydantic import BaseModel, ConfigDict, Field


class SwitchConfig(BaseModel):
    """What holds for a corpus until ``strata rollout set`` says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="Whether the graph answers at all; otherwise the keyword search does.")
    percent: int = Field(
        100, ge=0, le=100, description="Share of the users whom the graph answers, each always or never."
    )
    shadow: bool = Field(
        False,
        description="Run the other path too and compare in metrics: tells what a change would do, at twice the work.",
    )


class RolloutConfig(BaseModel):
    """Which path answers (R8), where the database says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: SwitchConfig = SwitchConfig()
    corpora: dict[str, SwitchConfig] = Field({}, description="By corpus, in place of the default.")
    refresh_ms: int = Field(
        1_000, ge=10, description="How old what a process knows of the switches may get. Less: they hold sooner."
    )

    def switch(self, corpus: str) -> SwitchConfig:
        """What the settings say of a corpus."""
        return self.corpora.get(corpus, self.default)
