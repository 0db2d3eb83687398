"""All settings: one strict YAML file, and the only place that reads the environment.

===============  =================================================================================================
variable         meaning
===============  =================================================================================================
STRATA_CONFIG    The settings file; without it and without ``--config`` every setting has its default.
STRATA_HOME      The data folder, before ``data_dir`` of the file.
STRATA_URL       Where clients find the service; without it ``server.host`` and ``server.port``.
STRATA_API_KEY   The key that clients send.
===============  =================================================================================================
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from contracts.errors import ConfigError
from contracts.trace import STAGES
from index.embedded.config import EmbeddedConfig
from index.ingest import IngestConfig
from models.config import CrossEncoderConfig, EmbedderModelConfig
from stages.assembler import AssemblerConfig
from stages.chain import ChainConfig
from stages.expander import ExpanderConfig
from stages.planner import PlannerConfig
from stages.reader import ReaderConfig
from stages.rechecker import RecheckerConfig
from stages.reranker import RerankerConfig
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearchConfig

LightStage = Literal["planner", "rechecker", "assembler"]


class Strict(BaseModel):
    """Base of the settings: unknown keys are refused by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Environment(Strict):
    """What the environment says; see the table above."""

    config: Path | None = None
    home: Path | None = None
    url: str | None = None
    api_key: str | None = Field(None, repr=False)

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """Read the variables ``STRATA_*``; empty ones count as not set."""
        names = ("config", "home", "url", "api_key")
        found = {name: variables.get(f"STRATA_{name.upper()}") for name in names}
        return cls.model_validate({name: value for name, value in found.items() if value})


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
        128, ge=1, description="Calls that wait for a replica a caller; beyond, 429. More wait longer before they fail."
    )
    max_surge_percent: int = Field(
        100, ge=0, le=100, description="Extra replicas in an update; 0 stops the old one first: a gap for a single one."
    )

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``Deployment.options``."""
        scale: dict[str, Any] = {"num_replicas": self.num_replicas}
        if self.autoscaling:
            scale = {"autoscaling_config": self.autoscaling.model_dump()}
        return {
            **scale,
            "ray_actor_options": {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus},
            "max_ongoing_requests": self.max_ongoing_requests,
            "max_queued_requests": self.max_queued_requests,
            "max_surge_percent": self.max_surge_percent,
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

    colocate: tuple[LightStage, ...] = Field(
        (), description="Light stages that run inside the ingress: a hop less each, but scaled with it."
    )
    planner: PlannerSettings = PlannerSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    seed_search: SeedSearchSettings = SeedSearchSettings()
    expander: ExpanderSettings = ExpanderSettings()
    rechecker: RecheckerSettings = RecheckerSettings()
    reranker: RerankerSettings = RerankerSettings()
    assembler: AssemblerSettings = AssemblerSettings()
    reader: ReaderSettings = ReaderSettings()


class ServerSettings(Strict):
    """The HTTP side."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 opens the service to the network.")
    port: int = Field(8000, ge=1, le=65535)
    max_concurrent: int = Field(
        64, ge=1, description="Requests an ingress replica works on; beyond, 429 at once. More slow all of them down."
    )
    max_body_bytes: int = Field(256 * 1024, ge=1024, description="Longer request bodies get 413.")
    read_timeout_ms: int = Field(2000, ge=1, description="Whole read_memory or read_batch.")
    ready_timeout_ms: int = Field(2000, ge=1, description="How long /readyz waits for the stages.")
    deployment: IngressDeployment = IngressDeployment()


class RaySettings(Strict):
    """The Ray cluster."""

    address: str | None = Field(
        None, description="An existing cluster, for instance auto or ray://host:10001; null starts one on this machine."
    )
    num_cpus: int | None = Field(
        None, ge=1, description="CPUs of a cluster started here; null takes the machine's. They only limit placing."
    )
    object_store_mb: int = Field(
        256, ge=80, description="Shared memory of a cluster started here. The graph's calls do not pass through it."
    )
    metrics_port: int | None = Field(
        None, ge=1, le=65535, description="Where Prometheus scrapes a cluster started here; null picks a free port."
    )
    proxy_location: Literal["HeadOnly", "EveryNode"] = Field(
        "EveryNode", description="Nodes that take HTTP requests; EveryNode are those with a replica."
    )
    dashboard: bool = Field(False, description="Ray's dashboard, about 150 MB of memory.")
    ready_timeout_s: float = Field(300, gt=0, description="How long the start waits for warm models.")
    environment: dict[str, str] = Field(
        {
            "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
            "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
            "RAY_SERVE_LOG_TO_STDERR": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        description="Serve's switches for a cluster started here. These save a thread hop and the object store a call; "
        "the price: code that blocks in a replica would also stall its health checks. Ray's usage reports are off.",
    )


class IndexSettings(Strict):
    """Where records live."""

    backend: Literal["embedded"] = "embedded"
    embedded: EmbeddedConfig = EmbeddedConfig()


class Settings(Strict):
    """Everything, with a default each."""

    data_dir: Path = Field(Path(".strata"), description="Index, keys and models; relative to the working folder.")
    index: IndexSettings = IndexSettings()
    embedder: EmbedderModelConfig = EmbedderModelConfig()
    cross_encoder: CrossEncoderConfig = CrossEncoderConfig()
    ingest: IngestConfig = IngestConfig()
    server: ServerSettings = ServerSettings()
    ray: RaySettings = RaySettings()
    chain: ChainConfig = ChainConfig()
    scoring: ScoringConfig = ScoringConfig()
    stages: StagesSettings = StagesSettings()

    @model_validator(mode="after")
    def _known_budgets(self) -> Self:
        unknown = sorted(self.chain.budgets.keys() - set(STAGES))
        if unknown:
            raise ValueError(f"chain.budgets names {', '.join(unknown)}, which no stage is called")
        return self

    @property
    def index_dir(self) -> Path:
        """Folder of the embedded index."""
        return self.data_dir / "index"

    @property
    def keys_path(self) -> Path:
        """The API keys."""
        return self.data_dir / "keys.db"

    @property
    def longest_request_s(self) -> float:
        """Seconds after which any request has been answered."""
        return max(self.chain.timeout_ms, self.server.read_timeout_ms) / 1000

    @property
    def url(self) -> str:
        """Where clients on this machine find the service."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.server.host, self.server.host)  # noqa: S104
        return f"http://{host}:{self.server.port}"


def load(path: Path | None = None, environment: Environment | None = None) -> Settings:
    """Read the settings.

    Args:
        path: The YAML file; by default STRATA_CONFIG, else defaults for everything.
        environment: By default the process's.

    Returns:
        Settings whose folders are absolute, so that they mean the same in every process.

    Raises:
        ConfigError: The file can't be read, or a setting is unknown or wrong; ``field`` is its dotted key.
    """
    environment = environment or Environment.read()
    path = path or environment.config
    raw = _read_yaml(path) if path else {}
    return resolved(parse(raw, source=str(path) if path else "the defaults"), environment)


def resolved(settings: Settings, environment: Environment) -> Settings:
    """Settings whose folders are absolute, so that they mean the same in every process."""
    data_dir = (environment.home or settings.data_dir).expanduser().absolute()
    return settings.model_copy(
        update={
            "data_dir": data_dir,
            "embedder": _with_folders(settings.embedder, data_dir),
            "cross_encoder": _with_folders(settings.cross_encoder, data_dir),
        }
    )


def parse(raw: Mapping[str, Any], *, source: str = "the settings") -> Settings:
    """Settings from plain data.

    Args:
        raw: As a YAML file holds it.
        source: Named in the error.

    Raises:
        ConfigError: The first thing that is wrong, by its dotted key.
    """
    try:
        return Settings.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        if first["type"] == "extra_forbidden":
            raise ConfigError(
                f"{source} has an unknown setting {key}{more}.", field=key, remedy="Correct or remove it."
            ) from None
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"{key or 'A setting'} in {source} is wrong: {reason}{more}.", field=key, remedy="Correct the setting."
        ) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"The settings file {path} can't be read: {error.strerror}.",
            field="STRATA_CONFIG",
            remedy="Name an existing file with --config or STRATA_CONFIG.",
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path} is no YAML{where}.", remedy="Correct the file.") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must hold a mapping.", remedy="Start from configs/local.yaml.")
    return raw


Model = TypeVar("Model", EmbedderModelConfig, CrossEncoderConfig)


def _with_folders(model: Model, data_dir: Path) -> Model:
    chosen = "cache_dir" in model.model_fields_set
    folders = {"cache_dir": model.cache_dir.expanduser().absolute() if chosen else data_dir / "models"}
    if model.path:
        folders["path"] = model.path.expanduser().absolute()
    return model.model_copy(update=folders)
