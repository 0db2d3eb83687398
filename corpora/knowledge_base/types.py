"""What the knowledge base keeps, takes in and gives back."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from contracts.trace import Degradation

EntityStatus = Literal["draft", "published", "archived"]
# The owner space of all chunks. The chunks of a tenant are told apart from another's by their account, as everywhere.
SPACE = "kb"


class Entity(msgspec.Struct, frozen=True):
    """Something that is known about: a garment, a product, a place.

    Args:
        entity_id: The caller's name of it, unique in its account; fit for a URI.
        type: What searches narrow by.
        status: Only ``published`` ones show.
        name: Its title, searched as text with each of its chunks.
        attrs: The attributes that the deployment declares; of kind ``keywords`` a list of strings.
        updated_at: When its content changed, milliseconds since the epoch; 0 on writing means now.
    """

    entity_id: str
    type: str
    status: EntityStatus = "draft"
    name: str = ""
    attrs: Mapping[str, Any] = {}
    updated_at: int = 0


class ChunkText(msgspec.Struct, frozen=True):
    """A chunk as it is written.

    Args:
        chunk_id: The caller's name of it, unique in its account; fit for a URI.
        entity_id: Of which entity.
        text: What is searched and handed out.
        chunk_type: What it is, for instance ``description``.
    """

    chunk_id: str
    entity_id: str
    text: str
    chunk_type: str = "text"


class Chunk(msgspec.Struct, frozen=True):
    """A chunk as it is kept: with the model and the version of its vector, without which none is kept (K4)."""

    chunk_id: str
    entity_id: str
    text: str
    chunk_type: str
    embedding_model: str
    embedding_version: str


class Asset(msgspec.Struct, frozen=True):
    """A file that belongs to an entity (K6).

    Args:
        asset_id: The caller's name of it, unique in its account.
        entity_id: Of which entity.
        asset_type: What it is, for instance ``image``.
        storage_key: Where the object store has it.
        spec_check: What a check of its format found.
        tryon_ready: Whether it can be tried on.
        review_status: How far its review is.
        licence: Under which it may be used.
    """

    asset_id: str
    entity_id: str
    asset_type: str
    storage_key: str
    spec_check: Mapping[str, Any] = {}
    tryon_ready: bool = False
    review_status: str = "pending"
    licence: str = ""


class Gap(msgspec.Struct, frozen=True):
    """A question without an answer (K5).

    Args:
        gap_id: The same for the same text and filters.
        query_text: As it was asked.
        filter_ctx: Entity types and hard filters that it was asked under.
        hit_count: How often it was asked in vain.
        first_seen_at: Milliseconds since the epoch.
        last_seen_at: Milliseconds since the epoch.
        resolved_at: When an editor closed it, milliseconds since the epoch; 0 while it is open.
        note: What the editor did.
    """

    gap_id: str
    query_text: str
    filter_ctx: Mapping[str, Any]
    hit_count: int
    first_seen_at: int
    last_seen_at: int
    resolved_at: int = 0
    note: str = ""


class GapCluster(msgspec.Struct, frozen=True):
    """Gaps that ask for the same; the first one, asked most often, stands for all.

    Args:
        query_text: Of the one that stands for all.
        hit_count: Of all together.
        gaps: Most hits first.
    """

    query_text: str
    hit_count: int
    gaps: tuple[Gap, ...]


class SearchRequest(msgspec.Struct, frozen=True):
    """A search, as it travels.

    Args:
        query_text: 1..8192 characters.
        entity_types: Only entities of one of these; empty for any.
        filters: Values by the name of a hard filter; a filter without a value is not applied.
        rule_boost: By chunk id, at least 0; see ``scoring.rule_parts``.
        top_k: Results wanted; ``None`` for the configured number.
    """

    query_text: str
    entity_types: Sequence[str] = ()
    filters: Mapping[str, Sequence[str]] = {}
    rule_boost: Mapping[str, float] = {}
    top_k: int | None = None


class ScoredChunk(msgspec.Struct, frozen=True):
    """A result; the four parts of its score lie in 0..1, see ``scoring``.

    Args:
        chunk_id: Of the chunk.
        entity_id: Of its entity.
        text: The chunk's, redacted like every L2.
        vec_score: Cosine of chunk and query, negative ones 0.
        kw_score: Lexical coverage.
        final_score: What results are ordered by.
        rule_score: What the caller's rules gave it.
        freshness: 1 for what changed just now, one half after a half-life.
        rrf: Reciprocal rank fusion of the two recalls.
        entity_type: Of its entity.
        chunk_type: Of the chunk.
    """

    chunk_id: str
    entity_id: str
    text: str
    vec_score: float
    kw_score: float
    final_score: float
    rule_score: float = 0.0
    freshness: float = 0.0
    rrf: float = 0.0
    entity_type: str = ""
    chunk_type: str = ""


class SearchOutcome(msgspec.Struct, frozen=True):
    """The answer to a search (K5).

    Args:
        results: Best first.
        degraded: Whether anything is missing: nothing was found, or a part of the search failed.
        reasons: What, with codes.
        gap_id: Of the gap that was recorded, as nothing was found; empty for none.
        retryable: Whether the same search may find more a moment later.
        request_id: Of the request.
    """

    results: tuple[ScoredChunk, ...]
    degraded: bool = False
    reasons: tuple[Degradation, ...] = ()
    gap_id: str = ""
    retryable: bool = False
    request_id: str = ""
