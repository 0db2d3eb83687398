"""Settings of the knowledge base: those of the core, and how it is served."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from contracts.errors import ConfigError
from corpora.knowledge_base.config import KnowledgeBaseConfig
from deployments.stage_settings import BatchSettings, DeploymentSettings, EmbedderDeployment, Strict
from models.config import EmbedderModelConfig, TorchOptions

# What a query's prefix or the device change, no vector of a chunk shows.
_OF_VECTORS = frozenset(EmbedderModelConfig.model_fields) - frozenset(TorchOptions.model_fields) - {
    "query_prefix", "batch_tokens", "threads", "query_cache", "cache_dir"
}  # fmt: skip


class IndexDeployment(DeploymentSettings):
    """How the deployment is run that keeps the index up with the database."""

    max_surge_percent: int = Field(
        0, ge=0, le=100, description="0 stops the old one first in an update: the embedded index has one writer."
    )


class KnowledgeBaseServing(Strict):
    """How the knowledge base is served."""

    deployment: DeploymentSettings = DeploymentSettings()
    seed_search: DeploymentSettings = DeploymentSettings()
    embedder: EmbedderDeployment = Field(
        EmbedderDeployment(), description="Of its own embedder; where its model is the graph's, that one serves both."
    )
    batch: BatchSettings = BatchSettings(limit=64)
    index: IndexDeployment = IndexDeployment()
    embed_texts: int = Field(
        16,
        ge=1,
        description="Chunks in one call of the embedder. Fewer: queries wait less for chunks that are written.",
    )
    embed_timeout_s: float = Field(30.0, gt=0, description="Longest wait for such a call; then it is tried again.")


class KnowledgeBaseSettings(KnowledgeBaseConfig):
    """Everything about the knowledge base."""

    enabled: bool = Field(False, description="Whether the graph has it; four deployments more.")
    http: bool = Field(
        False,
        description="Whether it has a route, POST /v1/kb/search, for keys that may see the space kb. Without one it is "
        "for other applications in the cluster, by its Serve handle.",
    )
    serving: KnowledgeBaseServing = KnowledgeBaseServing()

    @property
    def index_name(self) -> str:
        """A folder name that tells the vectors of one model apart from those of any other."""
        shape = self.embedder.model_dump_json(include=set(_OF_VECTORS))
        return f"{re.sub('[^A-Za-z0-9.]+', '-', self.embedder.name)}-{hashlib.sha256(shape.encode()).hexdigest()[:8]}"


# Where in the settings each variable's value belongs.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "KB_EMBEDDING_MODEL": ("embedder", "name"),
    "KB_VECTOR_DIMENSIONS": ("embedder", "dimensions"),
    "KB_EMBEDDING_DEVICE": ("embedder", "device"),
    "RETRIEVAL_TOP_K": ("top_k",),
    "RETRIEVAL_RERANK_WEIGHTS_JSON": ("weights",),
}


def overridden(settings: KnowledgeBaseSettings, variables: Mapping[str, str | None]) -> KnowledgeBaseSettings:
    """The settings with what the environment says in their place, checked like the file (K8).

    Args:
        settings: Those of the file.
        variables: By name; ``None`` leaves the file's value.

    Raises:
        ConfigError: A value is wrong; names the variable.
    """
    given = {name: value for name, value in variables.items() if value is not None}
    if not given:
        return settings
    raw: dict[str, Any] = settings.model_dump(exclude_unset=True)
    for name, value in given.items():
        section, *field = _PLACES[name]
        raw[section] = {**raw.get(section, {}), field[0]: value} if field else _value(name, value)
    try:
        return KnowledgeBaseSettings.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = first["loc"]
        # The deepest place that fits: what is wrong with a section as a whole is told of the first variable in it.
        near = [name for name in given if place[: len(_PLACES[name])] == _PLACES[name]]
        near += [name for name in given if place[:1] == _PLACES[name][:1]]
        name = (near or list(given))[0]
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{name} is wrong: {reason}.", field=name, remedy="Correct the variable.") from None


def _value(name: str, text: str) -> Any:
    if not name.endswith("_JSON"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(
            f"{name} is no JSON.", field=name, remedy='Write {"vector": 0.45, "keyword": 0.2, …}.'
        ) from None
