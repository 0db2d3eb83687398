"""What can be set about the Elasticsearch index. Secrets are not settings: they come from the environment or a file."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from index.bm25 import BM25Config


class Section(BaseModel):
    """Base of the sections below."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ConnectionConfig(Section):
    """How the cluster is reached."""

    hosts: tuple[str, ...] = Field(
        (),
        description="URLs with scheme and port, for instance https://es-1:9200; empty, without a cloud_id: the "
        "development cluster of the data folder (strata es start).",
    )
    cloud_id: str | None = Field(None, description="Of an Elastic Cloud deployment, in place of hosts.")
    username: str | None = Field(None, description="For basic authentication; the password is a secret.")
    ca_file: Path | None = Field(None, description="PEM file of the authority that signed the cluster's certificates.")
    verify: bool = Field(True, description="Check certificates. Without, anybody in between can read and write along.")
    connections: int = Field(16, ge=1, description="Open connections a process and node. More searches side by side.")
    request_timeout_ms: int = Field(
        5_000, ge=1, description="Longest wait for one response; searches stop earlier, at their deadline."
    )
    compress: bool = Field(False, description="Gzip requests and responses: less network, more CPU.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.hosts and self.cloud_id:
            raise ValueError("hosts and cloud_id name two places; keep one")
        return self

    @field_validator("hosts")
    @classmethod
    def _urls(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            scheme, _, rest = host.partition("://")
            if "@" in rest:
                raise ValueError("a host holds a user or password; use username and a secret")
            if scheme not in {"http", "https"} or not rest:
                raise ValueError(f"{host!r} is no URL; write it like https://es-1:9200")
        return hosts


class LayoutConfig(Section):
    """How records are laid out; it holds for index versions made from now on."""

    shards: int = Field(3, ge=1, le=1024, description="Shards of an index version. About 5 million records a shard.")
    replicas: str = Field(
        "0-1",
        coerce_numbers_to_str=True,
        pattern=r"^\d+(-(\d+|all))?$",
        description="Copies besides the first: a number, or a range that follows the number of nodes. With none, a "
        "lost node is a lost shard.",
    )
    routing: Literal["account", "none"] = Field(
        "account",
        description="account: an account's records lie on one shard, and its searches touch no other; none: they are "
        "spread over all, which suits a single huge account.",
    )
    partition: int = Field(
        1, ge=1, description="With routing by account: shards an account is spread over. More even, more shards asked."
    )
    hnsw_m: int = Field(16, ge=2, le=512, description="Neighbours a vector. More: better recall, slower ingest.")
    hnsw_ef_construction: int = Field(
        100, ge=2, le=3200, description="Candidates looked at per inserted vector. More: better recall, slower ingest."
    )
    segments_per_tier: int = Field(
        3,
        ge=2,
        le=50,
        description="Segments of about one size, before they are merged into one. Each costs every search a walk of "
        "its graph, and as many vectors to compare. Fewer: cheaper searches, more merging while much is written.",
    )
    floor_segment_mb: int = Field(
        64, ge=1, le=1024, description="Smaller segments count as this large: so many small ones are merged soon."
    )
    refresh_seconds: int = Field(
        30,
        ge=1,
        description="How soon searches go by merged segments. What is written shows with its commit, whatever this is. "
        "Less: more often caches are cold.",
    )

    @model_validator(mode="after")
    def _partition_fits(self) -> Self:
        if self.partition > 1 and self.partition >= self.shards:
            raise ValueError(f"partition must be below shards, which is {self.shards}")
        return self


class RecallConfig(Section):
    """How thoroughly is searched."""

    num_candidates: float = Field(
        1.5, ge=1, le=10, description="Vectors looked at per shard and hit wanted. More: better recall, slower."
    )
    min_candidates: int = Field(150, ge=1, le=10_000, description="The least number of them, for small limits.")
    rescore: float = Field(
        1.5, ge=1, le=10, description="Candidates per hit rescored on the full vectors. More: better, slower."
    )
    keyword_oversampling: float = Field(
        1.5,
        ge=1,
        le=10,
        description="Keyword candidates fetched per one kept by our own coverage, which knows account and kind.",
    )
    resolve_seconds: float = Field(
        5, ge=0, description="How long a process takes the serving index version for granted. Less: swaps show sooner."
    )
    kept_nodes: int = Field(
        20_000,
        ge=0,
        description="Nodes a process keeps in memory once read, 2 to 3 KB each: searches that find them again cost the "
        "cluster half.",
    )
    bm25: BM25Config = Field(BM25Config(), description="Lexical coverage.")


class WriteConfig(Section):
    """How is written."""

    commit_rows: int = Field(
        2_000, ge=1, description="Nodes a commit; documents are never split. More: faster ingest, more memory."
    )
    bulk_bytes: int = Field(
        4 * 1024 * 1024, ge=10_000, description="Size of a bulk request. More: fewer round trips, more heap."
    )
    in_flight: int = Field(2, ge=1, le=64, description="Bulk requests side by side. More: faster, until 429s come.")
    attempts: int = Field(
        10, ge=1, description="Tries of what the cluster was too busy (429, 503) to take; ten last half a minute."
    )
    backoff_ms: int = Field(100, ge=1, description="Wait before the second try; doubles, with jitter.")
    max_backoff_ms: int = Field(10_000, ge=1, description="The longest such wait.")
    request_timeout_ms: int = Field(
        60_000, ge=1, description="Longest wait for one bulk request; it may wait for segments to be merged."
    )
    lease_seconds: float = Field(
        60, gt=0, description="A writer silent for longer is taken for dead, and what it left half done is cleared up."
    )
    keep_seconds: float = Field(
        60, gt=0, description="How long searches under way are told of records just replaced; longer than any search."
    )
    settle_seconds: float = Field(
        2,
        gt=0,
        description="A re-embedding stops all writes for its last pass once a pass took no longer than this. Less: a "
        "shorter stop, and more passes while much is being written.",
    )


class BreakerConfig(Section):
    """When searches stop waiting for a cluster that does not answer."""

    failures: int = Field(5, ge=1, description="Failed calls in a row after which calls are refused at once.")
    open_seconds: float = Field(2, gt=0, description="After that long one call is let through to see.")
    fair_ms: int = Field(
        250, ge=1, description="A call cut short sooner does not count: hasty callers can't open the breaker for all."
    )


class ElasticConfig(Section):
    """Settings of the Elasticsearch index."""

    prefix: str = Field(
        "strata",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$",
        description="Start of all index names; different prefixes are different indices.",
    )
    connection: ConnectionConfig = ConnectionConfig()
    layout: LayoutConfig = LayoutConfig()
    recall: RecallConfig = RecallConfig()
    write: WriteConfig = WriteConfig()
    breaker: BreakerConfig = BreakerConfig()
