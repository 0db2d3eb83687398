"""Settings of corpora: those of the core, and how it is served."""

from pydantic import Field

from corpora.rag.config import CorporaConfig
from deployments.stage_settings import DeploymentSettings, Strict


class CorporaHttp(Strict):
    """The routes under ``/v1/corpora``."""

    max_body_bytes: int = Field(
        8 * 2**20, ge=1024, description="Longer bodies of an ingest get 413; those of a retrieval as everywhere."
    )
    max_bodies: int = Field(256, ge=1, description="Bodies of a batch ingest.")
    max_deletions: int = Field(1000, ge=1, description="Sources of a batch deletion.")
    max_retrievals: int = Field(
        16, ge=1, description="Retrievals of a batch, all side by side. More load the graph with one request."
    )
    max_wait_ms: int = Field(
        5_000, ge=0, description="Longest that an ingest or a deletion is waited for (wait_ms); then 202."
    )
    max_writes: int = Field(
        16, ge=1, description="Ingests and deletions of an ingress at once; beyond, 429. Each holds its body in memory."
    )
    max_waiting: int = Field(
        8, ge=0, description="Requests of an ingress that wait so; beyond, 202 at once. Each holds a place meanwhile."
    )


class IngestDeployment(DeploymentSettings):
    """How the deployment is run that brings acknowledged sources into the index."""

    num_cpus: float = Field(0.1, ge=0, description="CPUs booked a replica, for placing only.")
    max_surge_percent: int = Field(
        0, ge=0, le=100, description="0 stops the old one first in an update; nothing waits for it meanwhile."
    )


class CorporaServing(Strict):
    """How the core is served."""

    http: CorporaHttp = CorporaHttp()
    deployment: IngestDeployment = IngestDeployment()
    embed_texts: int = Field(
        16,
        ge=1,
        description="Texts of an ingest in one call of the graph's embedder. Fewer: a call takes less of the time "
        "that queries wait.",
    )
    embed_timeout_s: float = Field(
        30.0, gt=0, description="Longest wait for such a call; then it is tried again later."
    )
    backlog_s: float = Field(5.0, gt=0, description="How often the backlog is counted for metrics.")


class CorporaSettings(CorporaConfig):
    """Everything about corpora."""

    serving: CorporaServing = CorporaServing()
