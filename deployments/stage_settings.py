"""Settings of the stages: what each goes by, and how it is deployed."""

from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from deployments.wire.places import Places
from stages.assembler import AssemblerConfig
from stages.expander import ExpanderConfig
from stages.planner import PlannerConfig
from stages.reader import ReaderConfig
from stages.rechecker import RecheckerConfig
from stages.reranker import RerankerConfig
from stages.seed_search import SeedSearchConfig

ColocatedStage = Literal["planner", "embedder", "seed_search", "expander", "rechecker", "reranker", "assembler"]
# Those of them that read the index.
INDEXED: frozenset[ColocatedStage] = frozenset(("seed_search", "expander", "rechecker"))


class Strict(BaseModel):
    """Base of the settings: unknown keys are refused by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AutoscalingSettings(Strict):
    """Replicas by load."""

    min_replicas: int = Field(1, ge=1, description="Kept while idle; more answer a sudden burst at once.")
    max_replicas: int = Field(4, ge=1, description="Never exceeded; bounds the cost.")
    target_ongoing_requests: float = Field(4, gt=0, description="Calls a replica aims at; fewer is faster and dearer.")
    look_back_period_s: float = Field(30, gt=0, description="Window that the load is averaged over.")
    upscale_delay_s: float = Field(30, ge=0, description="At least the look-back, or it thrashes.")
    downscale_delay_s: float = Field(600, ge=0, description="Short ones oscillate.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_replicas < self.min_replicas:
            raise ValueError("max_replicas is below min_replicas")
        if min(self.upscale_delay_s, self.downscale_delay_s) < self.look_back_period_s:
            raise ValueError("a delay is shorter than look_back_period_s, which makes the number of replicas thrash")
        return self

    def options(self) -> dict[str, Any]:
        """Serve's ``autoscaling_config``."""
        return {
            **self.model_dump(),
            # Replicas tell of their load several times within the window, or it would be empty now and then.
            "metrics_interval_s": min(10.0, self.look_back_period_s / 3),
            "policy": {"policy_function": "deployments.scaling:by_calls"},
        }


class DeploymentSettings(Strict):
    """How one stage is deployed."""

    num_replicas: int = Field(1, ge=1, description="Fixed number of replicas; ignored with autoscaling.")
    autoscaling: AutoscalingSettings | None = Field(None, description="Replicas by load instead of a fixed number.")
    num_cpus: float = Field(
        0.05, ge=0, description="CPUs booked a replica, for placing only: nothing is cut off beyond them."
    )
    num_gpus: float = Field(0, ge=0, description="GPUs booked a replica; fractions share one.")
    max_ongoing_requests: int = Field(
        64, ge=1, description="Calls in a replica at once; at least what a batch of the stage can hold."
    )
    max_queued_requests: int = Field(
        128, ge=1, description="Calls that wait in a replica for one of these places; beyond, 429. More wait longer."
    )
    max_surge_percent: int = Field(
        100, ge=0, le=100, description="Extra replicas in an update; 0 stops the old one first: a gap for a single one."
    )

    def places(self, wire: bool) -> Places | None:
        """How many calls a replica takes by the wire, where there is one."""
        return Places(self.max_ongoing_requests, self.max_queued_requests) if wire else None

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``Deployment.options``."""
        scale: dict[str, Any] = {"num_replicas": self.num_replicas}
        if self.autoscaling:
            scale = {"autoscaling_config": self.autoscaling.options()}
        return {
            **scale,
            "ray_actor_options": {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus},
            "max_ongoing_requests": self.max_ongoing_requests,
            "max_queued_requests": self.max_queued_requests,
            "max_surge_percent": self.max_surge_percent,
            # A replica that died is missed that soon, and a new one started.
            "health_check_period_s": 2,
            "graceful_shutdown_wait_loop_s": 0.5,
            "graceful_shutdown_timeout_s": 10,
        }


class EmbedderDeployment(DeploymentSettings):
    """How the embedder is deployed."""

    num_cpus: float = Field(0.3, ge=0, description="As for the other stages; the model is what computes.")
    max_ongoing_requests: int = Field(128, ge=1, description="At least twice the texts of a batch, to keep it full.")


class IngressDeployment(DeploymentSettings):
    """How the ingress is deployed."""

    num_cpus: float = Field(0.1, ge=0, description="CPUs booked a replica, for placing only.")


class BatchSettings(Strict):
    """How a model takes several requests at once; changes without a restart."""

    limit: int = Field(ge=1, description="Texts (embedder) or pairs (reranker) a batch; more is faster on GPUs.")


class PlannerSettings(Strict):
    """The planner."""

    config: PlannerConfig = PlannerConfig()
    deployment: DeploymentSettings = DeploymentSettings()


class EmbedderSettings(Strict):
    """The embedder; its model is the ``embedder`` setting, which ingest uses too."""

    batch: BatchSettings = BatchSettings(limit=64)
    deployment: EmbedderDeployment = EmbedderDeployment()


class SeedSearchSettings(Strict):
    """The seed search."""

    config: SeedSearchConfig = SeedSearchConfig()
    deployment: DeploymentSettings = DeploymentSettings()


class ExpanderSettings(Strict):
    """The expander."""

    config: ExpanderConfig = ExpanderConfig()
    deployment: DeploymentSettings = DeploymentSettings()


class RecheckerSettings(Strict):
    """The rechecker."""

    config: RecheckerConfig = RecheckerConfig()
    deployment: DeploymentSettings = DeploymentSettings()


class RerankerSettings(Strict):
    """The reranker; its model is the ``cross_encoder`` setting."""

    config: RerankerConfig = RerankerConfig()
    batch: BatchSettings = BatchSettings(limit=256)
    side_by_side: int = Field(
        4, ge=1, description="Requests worked on at once; their pairs share batches. More fill a GPU, 1 suits CPUs."
    )
    deployment: DeploymentSettings = DeploymentSettings()


class AssemblerSettings(Strict):
    """The assembler."""

    config: AssemblerConfig = AssemblerConfig()
    deployment: DeploymentSettings = DeploymentSettings()


class ReaderSettings(Strict):
    """The reader."""

    config: ReaderConfig = ReaderConfig()
    deployment: DeploymentSettings = DeploymentSettings()


class StagesSettings(Strict):
    """Every stage of the graph, the reader of the second walk among them."""

    colocate: tuple[ColocatedStage, ...] = Field(
        (),
        description="Stages that run inside the ingress: a hop less each, but scaled with it. Those on the index share "
        "what it holds in memory; the embedder's model is loaded into each ingress; the reranker is one only while its "
        "kind is none.",
    )
    searches_at_once: int = Field(
        8,
        ge=1,
        le=1000,
        description="Searches that an ingress works on at once when all stages run inside; others wait in the order "
        "they came. Fewer: one without room is refused sooner. More: more of them wait for the index side by side.",
    )
    planner: PlannerSettings = PlannerSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    seed_search: SeedSearchSettings = SeedSearchSettings()
    expander: ExpanderSettings = ExpanderSettings()
    rechecker: RecheckerSettings = RecheckerSettings()
    reranker: RerankerSettings = RerankerSettings()
    assembler: AssemblerSettings = AssemblerSettings()
    reader: ReaderSettings = ReaderSettings()

    @property
    def at_once(self) -> int | None:
        """Searches that an ingress works on at once; ``None`` for all that come, since others do the work."""
        return self.searches_at_once if {*self.colocate} == {*get_args(ColocatedStage)} else None

    @model_validator(mode="after")
    def _light(self) -> Self:
        if "reranker" in self.colocate and self.reranker.config.kind != "none":
            raise ValueError("colocate names the reranker, which it may only while its kind is none")
        return self
