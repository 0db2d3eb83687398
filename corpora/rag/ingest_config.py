"""What can be set about the ingest of corpora."""

from pydantic import BaseModel, ConfigDict, Field

from index.abstracts import AbstractOptions
from index.chunker import ChunkOptions


class IngestQueueConfig(BaseModel):
    """Settings of the durable ingest: how sources are cut, how many at a time, and what happens when a step fails."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chunk: ChunkOptions = Field(ChunkOptions(), description="How long texts are cut (R2).")
    abstracts: AbstractOptions = Field(AbstractOptions(), description="How long made L0 and L1 texts are.")
    batch: int = Field(
        32, ge=1, le=1000, description="Sources worked on together. More: fuller batches, more to redo after a crash."
    )
    embed_texts: int = Field(256, ge=1, description="Texts an embedder call. More: fuller batches, longer calls.")
    max_attempts: int = Field(
        16,
        ge=1,
        le=100,
        description="Tries of a source before it is put aside; 16 take about an hour. More: outlasts a longer outage.",
    )
    backoff_s: float = Field(
        1.0, gt=0, description="Pause after the first failure; doubles with each further one, and varies by half."
    )
    max_backoff_s: float = Field(900.0, gt=0, description="Longest pause. Less: sooner mended, more load in an outage.")
    lease_s: float = Field(
        30.0,
        ge=0.5,
        description="How long a worker that fell silent keeps its sources. Less: sooner redone by another.",
    )
    poll_s: float = Field(
        2.0, gt=0, description="How often an idle worker looks for work that nobody told it of. Less: more queries."
    )
    idle_s: float = Field(
        5.0, ge=0, description="How long an idle worker keeps the index open. Less: other writers get in sooner."
    )
    sweep_s: float = Field(60.0, gt=0, description="How often expired sources and old rows are looked for.")
    max_backlog: int = Field(
        100_000, ge=1, description="Sources of one account that may wait. Less: callers are refused sooner, RET-4291."
    )
    retention_days: float = Field(7.0, gt=0, description="How long receipts of finished work can be asked for.")
    dead_retention_days: float = Field(
        30.0, gt=0, description="How long failed work, with its texts, is kept for strata ingest failures."
    )
