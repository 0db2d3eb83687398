"""What can be set about the embedded index."""

from pydantic import BaseModel, ConfigDict, Field

from index.bm25 import BM25Config


class ResidentConfig(BaseModel):
    """Which accounts each reading process holds in memory, where a search takes a tenth of the time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(
        20_000,
        ge=0,
        description="Nodes held in all, about 4 KB each at 384 dimensions; a larger account is searched on disk. 0 "
        "holds none.",
    )
    after_reads: int = Field(
        2, ge=1, description="Reads from disk before an account is read into memory; one alone would not pay."
    )
    share: float = Field(
        0.2, gt=0, le=1, description="Of a core, spent on reading an account that is written all the time, at most."
    )


class EmbeddedConfig(BaseModel):
    """Settings of the embedded index (LanceDB and SQLite in one folder)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keyword_oversampling: float = Field(
        1.5,
        ge=1,
        le=10,
        description="Keyword candidates fetched per one kept by our own coverage, which knows account and kind.",
    )
    ann_rows: int = Field(
        50_000,
        ge=1_000,
        description="Rows from which optimize() builds a vector index. Below, search is exact and linear in the rows.",
    )
    ann_probes: int = Field(
        20, ge=1, description="Partitions of the vector index looked at. More: better recall, slower."
    )
    ann_refine: int = Field(
        4, ge=1, description="Candidates per hit rescored on the full vectors. More: better, slower."
    )
    commit_rows: int = Field(
        2_000, ge=1, description="Nodes a commit; documents are never split. More: faster ingest, more memory."
    )
    keep_seconds: float = Field(
        60, gt=0, description="Old versions kept for readers in the middle of a search. More: safer, more disk."
    )
    resident: ResidentConfig = ResidentConfig()
    bm25: BM25Config = Field(BM25Config(), description="Lexical coverage.")
