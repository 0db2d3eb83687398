"""All settings: one strict YAML file, with a default for everything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from contracts.errors import ConfigError
from contracts.trace import STAGES
from database.config import DatabaseConfig
from deployments.corpora.settings import CorporaSettings
from deployments.environment import Environment
from deployments.identity.config import IdentitySettings
from deployments.knowledge_base.settings import KnowledgeBaseSettings, overridden
from deployments.limits.config import LimitsSettings
from deployments.stage_settings import IngressDeployment, StagesSettings, Strict
from evaluation.load.config import LoadConfig
from gateway.config import GatewayConfig
from index.elastic.config import ConnectionConfig, ElasticConfig
from index.embedded.config import EmbeddedConfig
from index.ingest import IngestConfig
from models.config import CrossEncoderConfig, EmbedderModelConfig
from stages.chain import ChainConfig
from stages.redaction import RedactionConfig
from stages.scoring import ScoringConfig

# Of the data folder: where the embedded index lies.
INDEX_FOLDER = "index"


class ServerSettings(Strict):
    """The HTTP side."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 opens the service to the network.")
    port: int = Field(8000, ge=1, le=65535)
    direct_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Where the ingresses listen themselves, beside Serve's proxy at port: milliseconds less a request, "
        "but while the only one is replaced nobody answers there.",
    )
    max_concurrent: int = Field(
        64,
        ge=1,
        description="Requests an ingress replica works on; beyond, 429 at once. More slow all of them down. Of "
        "searches it takes as many as limits.admission finds out.",
    )
    max_body_bytes: int = Field(256 * 1024, ge=1024, description="Longer request bodies get 413.")
    body_timeout_ms: int = Field(
        5000, ge=1, description="How long a request body may take to come; then 408. It holds a place meanwhile."
    )
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
    wire: bool = Field(
        True,
        description="Callers of a stage connect straight to its replicas, where a call takes a tenth of the CPU. "
        "false: calls go through Serve's router.",
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
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deployments.proxy:middlewares",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        description="Serve's switches for a cluster started here. These save a thread hop and the object store a call; "
        "the price: code that blocks in a replica would also stall its health checks. The proxy's own errors get our "
        "shape. Ray's usage reports are off.",
    )


class IndexSettings(Strict):
    """Where records live."""

    backend: Literal["embedded", "elasticsearch"] = Field(
        "embedded", description="embedded needs nothing else and suits one machine; elasticsearch grows beyond it."
    )
    embedded: EmbeddedConfig = EmbeddedConfig()
    elastic: ElasticConfig = ElasticConfig()


class Settings(Strict):
    """Everything, with a default each."""

    data_dir: Path = Field(Path(".strata"), description="Index, keys and models; relative to the working folder.")
    index: IndexSettings = IndexSettings()
    database: DatabaseConfig = DatabaseConfig()
    embedder: EmbedderModelConfig = EmbedderModelConfig()
    cross_encoder: CrossEncoderConfig = CrossEncoderConfig()
    ingest: IngestConfig = IngestConfig()
    server: ServerSettings = ServerSettings()
    identity: IdentitySettings = IdentitySettings()
    limits: LimitsSettings = LimitsSettings()
    corpora: CorporaSettings = CorporaSettings()
    gateway: GatewayConfig = GatewayConfig()
    knowledge_base: KnowledgeBaseSettings = KnowledgeBaseSettings()
    ray: RaySettings = RaySettings()
    chain: ChainConfig = ChainConfig()
    scoring: ScoringConfig = ScoringConfig()
    redaction: RedactionConfig = RedactionConfig()
    stages: StagesSettings = StagesSettings()
    bench: LoadConfig = LoadConfig()

    @model_validator(mode="after")
    def _known_budgets(self) -> Self:
        unknown = sorted(self.chain.budgets.keys() - set(STAGES))
        if unknown:
            raise ValueError(f"chain.budgets names {', '.join(unknown)}, which no stage is called")
        return self

    @property
    def index_dir(self) -> Path:
        """Folder of the embedded index."""
        return self.data_dir / INDEX_FOLDER

    @property
    def old_keys_path(self) -> Path:
        """The API keys of releases that did not keep them in the database."""
        return self.data_dir / "keys.db"

    @property
    def longest_request_s(self) -> float:
        """Seconds after which any request has been answered."""
        corpora = (self.corpora.retrieve.timeout_ms, self.corpora.serving.http.max_wait_ms)
        gateway = self.gateway.timeout_ms if self.gateway.enabled else 0
        kb = self.knowledge_base.timeout_ms if self.knowledge_base.http else 0
        return max(self.chain.timeout_ms, self.server.read_timeout_ms, *corpora, gateway, kb) / 1000

    @property
    def url(self) -> str:
        """Where clients on this machine find the service."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.server.host, self.server.host)  # noqa: S104
        return f"http://{host}:{self.server.direct_port or self.server.port}"


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
    raw = read_yaml(path) if path else {}
    return resolved(parse(raw, source=str(path) if path else "the defaults"), environment)


def resolved(settings: Settings, environment: Environment) -> Settings:
    """Settings whose folders are absolute, so that they mean the same in every process.

    Raises:
        ConfigError: A variable is wrong.
    """
    data_dir = (environment.home or settings.data_dir).expanduser().absolute()
    return settings.model_copy(
        update={
            "data_dir": data_dir,
            "index": settings.index.model_copy(update={"elastic": _located(settings.index.elastic, environment)}),
            "identity": _with_jwks(settings.identity),
            "embedder": _with_folders(settings.embedder, data_dir),
            "cross_encoder": _with_folders(settings.cross_encoder, data_dir),
            "knowledge_base": _knowledge_base(settings.knowledge_base, environment, data_dir),
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
        raise ConfigError(
            f"{key or 'A setting'} in {source} is wrong: {_reason(error)}{more}.",
            field=key,
            remedy="Correct the setting.",
        ) from None


def _reason(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping of a settings file, unchecked.

    Raises:
        ConfigError: It can't be read, or holds something else.
    """
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


def _located(elastic: ElasticConfig, environment: Environment) -> ElasticConfig:
    connection = elastic.connection
    changes: dict[str, Any] = {}
    if connection.ca_file:
        changes["ca_file"] = connection.ca_file.expanduser().absolute()
    if environment.elastic_hosts:
        hosts = tuple(host.strip() for host in environment.elastic_hosts.split(",") if host.strip())
        try:
            changes |= {"hosts": ConnectionConfig(hosts=hosts).hosts, "cloud_id": None}
        except ValidationError as error:
            raise ConfigError(
                f"STRATA_ELASTIC_HOSTS is wrong: {_reason(error)}.",
                field="STRATA_ELASTIC_HOSTS",
                remedy="Write URLs, with commas between.",
            ) from None
    return elastic.model_copy(update={"connection": connection.model_copy(update=changes)})


def _with_jwks(identity: IdentitySettings) -> IdentitySettings:
    if not identity.jwt.jwks_file:
        return identity
    path = identity.jwt.jwks_file.expanduser().absolute()
    return identity.model_copy(update={"jwt": identity.jwt.model_copy(update={"jwks_file": path})})


def _knowledge_base(settings: KnowledgeBaseSettings, environment: Environment, data_dir: Path) -> KnowledgeBaseSettings:
    """Its own variables come before the file (K8)."""
    own = overridden(
        settings,
        {
            "KB_EMBEDDING_MODEL": environment.kb_embedding_model,
            "KB_VECTOR_DIMENSIONS": environment.kb_vector_dimensions,
            "KB_EMBEDDING_DEVICE": environment.kb_embedding_device,
            "RETRIEVAL_TOP_K": environment.retrieval_top_k,
            "RETRIEVAL_RERANK_WEIGHTS_JSON": environment.retrieval_rerank_weights_json,
        },
    )
    return own.model_copy(update={"embedder": _with_folders(own.embedder, data_dir)})


Model = TypeVar("Model", EmbedderModelConfig, CrossEncoderConfig)


def _with_folders(model: Model, data_dir: Path) -> Model:
    chosen = "cache_dir" in model.model_fields_set
    folders = {"cache_dir": model.cache_dir.expanduser().absolute() if chosen else data_dir / "models"}
    if model.path:
        folders["path"] = model.path.expanduser().absolute()
    return model.model_copy(update=folders)
