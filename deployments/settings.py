"""All settings: one strict YAML file, and the only place that reads the environment.

===========================  =====================================================================================
variable                     meaning
===========================  =====================================================================================
STRATA_CONFIG                The settings file; without it and without ``--config`` every setting has its default.
STRATA_HOME                  The data folder, before ``data_dir`` of the file.
STRATA_URL                   Where clients find the service; without it ``server.host`` and ``server.port``.
STRATA_API_KEY               The key that clients send.
STRATA_JWT_SECRET            Secret: what JWTs with HS256 are signed with, at least 32 bytes.
STRATA_ELASTIC_HOSTS         URLs of Elasticsearch nodes, commas between, before those of the settings.
STRATA_ELASTIC_API_KEY       Secret: an API key for Elasticsearch.
STRATA_ELASTIC_PASSWORD      Secret: the password of ``index.elastic.connection.username``.
STRATA_…_FILE                The same three from files: ``STRATA_JWT_SECRET_FILE``, ``STRATA_ELASTIC_API_KEY_FILE``
                             and ``STRATA_ELASTIC_PASSWORD_FILE`` name them.
ES_JAVA_HOME                 The JDK that ``strata es`` looks at first; after it JAVA_HOME.
JAVA_HOME                    The same for whatever runs on Java.
XDG_CACHE_HOME               Where the user's caches lie, the server of ``strata es`` in them; else ``~/.cache``.
===========================  =====================================================================================

Secrets are read where they are used and travel nowhere. So every machine with an ingress needs that of JWTs, and every
one with a replica or a writer those of Elasticsearch, in its own environment: on Kubernetes a mounted secret, elsewhere
set before ``ray start``. A service that ``strata up`` starts hands its environment down to its replicas.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from contracts.errors import ConfigError
from contracts.trace import STAGES
from deployments.identity.config import IdentitySettings
from deployments.limits.config import LimitsSettings
from deployments.stage_settings import IngressDeployment, StagesSettings, Strict
from index.elastic.config import ConnectionConfig, ElasticConfig
from index.embedded.config import EmbeddedConfig
from index.ingest import IngestConfig
from models.config import CrossEncoderConfig, EmbedderModelConfig
from stages.chain import ChainConfig
from stages.redaction import RedactionConfig
from stages.scoring import ScoringConfig

# Variables that are not called STRATA_ and the field's name.
_VARIABLES = {"es_java_home": "ES_JAVA_HOME", "java_home": "JAVA_HOME", "cache_home": "XDG_CACHE_HOME"}
# Of the data folder: where the embedded index lies.
INDEX_FOLDER = "index"


class Environment(Strict):
    """What the environment says; see the table above."""

    config: Path | None = None
    home: Path | None = None
    url: str | None = None
    api_key: str | None = Field(None, repr=False)
    es_java_home: Path | None = None
    java_home: Path | None = None
    cache_home: Path | None = None
    jwt_secret: str | None = Field(None, repr=False)
    jwt_secret_file: Path | None = None
    elastic_hosts: str | None = None
    elastic_api_key: str | None = Field(None, repr=False)
    elastic_api_key_file: Path | None = None
    elastic_password: str | None = Field(None, repr=False)
    elastic_password_file: Path | None = None

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """Read the variables; empty ones count as not set."""
        found = {name: variables.get(_VARIABLES.get(name, f"STRATA_{name.upper()}")) for name in cls.model_fields}
        return cls.model_validate({name: value for name, value in found.items() if value})

    def secret(self, name: Literal["jwt_secret", "elastic_api_key", "elastic_password"]) -> str | None:
        """A secret: the variable's value, or what the file holds that the variable with ``_FILE`` names.

        Raises:
            ConfigError: The file can't be read or is empty.
        """
        value: str | None = getattr(self, name)
        path: Path | None = getattr(self, f"{name}_file")
        if value or path is None:
            return value
        variable = f"STRATA_{name.upper()}_FILE"
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(
                f"{variable} names {path}, which can't be read: {why}.", field=variable, remedy="Correct the path."
            ) from None
        if not text:
            raise ConfigError(f"{variable} names {path}, which is empty.", field=variable, remedy="Fill the file.")
        return text

    @property
    def java_homes(self) -> list[Path]:
        """JDKs to look at first, in order."""
        return [home for home in (self.es_java_home, self.java_home) if home]

    @property
    def cache_dir(self) -> Path:
        """What can be fetched again, shared by all data folders of the user."""
        return (self.cache_home or Path.home() / ".cache") / "strata"


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
    embedder: EmbedderModelConfig = EmbedderModelConfig()
    cross_encoder: CrossEncoderConfig = CrossEncoderConfig()
    ingest: IngestConfig = IngestConfig()
    server: ServerSettings = ServerSettings()
    identity: IdentitySettings = IdentitySettings()
    limits: LimitsSettings = LimitsSettings()
    ray: RaySettings = RaySettings()
    chain: ChainConfig = ChainConfig()
    scoring: ScoringConfig = ScoringConfig()
    redaction: RedactionConfig = RedactionConfig()
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
        return self.data_dir / INDEX_FOLDER

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


Model = TypeVar("Model", EmbedderModelConfig, CrossEncoderConfig)


def _with_folders(model: Model, data_dir: Path) -> Model:
    chosen = "cache_dir" in model.model_fields_set
    folders = {"cache_dir": model.cache_dir.expanduser().absolute() if chosen else data_dir / "models"}
    if model.path:
        folders["path"] = model.path.expanduser().absolute()
    return model.model_copy(update=folders)
