"""All tables. Each change here has its revision in ``migrations/versions``; a test holds the two against each other."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

# Constraints have names, so that a revision can change them on both dialects.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# API keys (C20): what somebody who has the key may see, and a hash of its secret.
api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", String(32), primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("role", String(16), nullable=False),
    Column("user_space", Text, nullable=False),
    Column("agent_space", Text, nullable=False),
    # Their names, with spaces between.
    Column("spaces", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
)

# Which path answers a corpus (R8), where an operator has set it; the settings hold elsewhere.
switches = Table(
    "switches",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("enabled", Boolean, nullable=False),
    Column("percent", Integer, nullable=False),
    Column("shadow", Boolean, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# SQLite counts up by itself in INTEGER only.
_SERIAL = BigInteger().with_variant(Integer, "sqlite")

# The durable ingest (R2): one row a source and change; ids grow with time for each source.
ingest_jobs = Table(
    "ingest_jobs",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("receipt_id", String(32), nullable=False),
    Column("request_id", Text, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("corpus", Text, nullable=False),
    Column("space", Text, nullable=False),
    Column("source_id", Text, nullable=False),
    Column("source_key", String(32), nullable=False),
    Column("action", String(8), nullable=False),
    Column("payload", LargeBinary),
    Column("state", String(12), nullable=False),
    Column("step", String(8), nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("owner", String(32), nullable=False),
    # When it may be claimed: a pending job's next try, a running one's end of lease; null once it is over.
    Column("due_at", BigInteger),
    Column("chunks", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("ix_ingest_jobs_due_at", "due_at", "id"),
    Index("ix_ingest_jobs_source_key", "source_key", "id"),
    Index("ix_ingest_jobs_receipt_id", "receipt_id"),
    Index("ix_ingest_jobs_account_id", "account_id", "state"),
    Index("ix_ingest_jobs_state", "state", "updated_at"),
)

# What is stored of each source; its row is the lock of all that changes the source's jobs.
ingest_sources = Table(
    "ingest_sources",
    metadata,
    Column("source_key", String(32), primary_key=True),
    Column("account_id", Text, nullable=False),
    Column("corpus", Text, nullable=False),
    Column("space", Text, nullable=False),
    Column("source_id", Text, nullable=False),
    # Empty while nothing of it is stored.
    Column("fingerprint", String(32), nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("ix_ingest_sources_account_id", "account_id", "corpus", "space"),
    Index("ix_ingest_sources_expires_at", "expires_at"),
)


def _of_user() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["user_id"], ["gateway_users.user_id"], ondelete="CASCADE")


# Users of the memory gateway, and where in the graph their memory lies.
gateway_users = Table(
    "gateway_users",
    metadata,
    Column("user_id", String(256), primary_key=True),
    Column("key_hash", Text, nullable=False),
    Column("account_id", String(255), nullable=False),
    Column("space", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("account_id", "space"),
)

# Their resources, each with the session that it is remembered under (G7).
gateway_resources = Table(
    "gateway_resources",
    metadata,
    Column("user_id", String(256), primary_key=True),
    Column("resource_id", String(256), primary_key=True),
    Column("session_id", String(1024), nullable=False),
    Column("uri", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    _of_user(),
    UniqueConstraint("user_id", "session_id"),
)

# Memories that a user does not want to see any more (G6).
gateway_tombstones = Table(
    "gateway_tombstones",
    metadata,
    Column("user_id", String(256), primary_key=True),
    Column("memory_id", String(1024), primary_key=True),
    Column("updated_at", BigInteger, nullable=False),
    _of_user(),
)

# What a user wants to read in place of a memory's text, while it is active (G6).
gateway_overrides = Table(
    "gateway_overrides",
    metadata,
    Column("user_id", String(256), primary_key=True),
    Column("memory_id", String(1024), primary_key=True),
    Column("text", Text, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    _of_user(),
)

# Agents that a user may search where ``gateway.agent_ownership`` is ``check``.
gateway_agents = Table(
    "gateway_agents",
    metadata,
    Column("user_id", String(256), primary_key=True),
    Column("agent_id", String(256), primary_key=True),
    Column("updated_at", BigInteger, nullable=False),
    _of_user(),
)


def _of_entity() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["account_id", "entity_id"], ["kb_entities.account_id", "kb_entities.entity_id"], ondelete="CASCADE"
    )


_ATTRIBUTES = JSON().with_variant(JSONB(), "postgresql")

# The knowledge base (K1); ``revision`` grows with each change to the entity or a chunk of it.
kb_entities = Table(
    "kb_entities",
    metadata,
    Column("account_id", String(255), primary_key=True),
    Column("entity_id", String(128), primary_key=True),
    Column("type", String(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("attrs", _ATTRIBUTES, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    CheckConstraint("status IN ('draft', 'published', 'archived')", name="status"),
)

# The texts of the chunks, and of which model their vectors in the index are (K4).
kb_chunks = Table(
    "kb_chunks",
    metadata,
    Column("account_id", String(255), primary_key=True),
    Column("chunk_id", String(128), primary_key=True),
    Column("entity_id", String(128), nullable=False),
    Column("chunk_type", String(32), nullable=False),
    Column("text", Text, nullable=False),
    Column("embedding_model", String(255), nullable=False),
    Column("embedding_version", String(128), nullable=False),
    _of_entity(),
    CheckConstraint("embedding_model <> '' AND embedding_version <> ''", name="embedded"),
    Index(None, "account_id", "entity_id"),
)

# Files of the entities (K6).
kb_assets = Table(
    "kb_assets",
    metadata,
    Column("account_id", String(255), primary_key=True),
    Column("asset_id", String(128), primary_key=True),
    Column("entity_id", String(128), nullable=False),
    Column("asset_type", String(32), nullable=False),
    Column("storage_key", String(1024), nullable=False),
    Column("spec_check", _ATTRIBUTES, nullable=False),
    Column("tryon_ready", Boolean, nullable=False),
    Column("review_status", String(32), nullable=False),
    Column("licence", String(128), nullable=False),
    _of_entity(),
    Index(None, "account_id", "entity_id"),
    Index(
        "ix_kb_assets_tryon_ready",
        "account_id",
        "entity_id",
        sqlite_where=text("tryon_ready = 1"),
        postgresql_where=text("tryon_ready"),
    ),
)

# Questions without an answer (K5); the id is a digest of text and filters.
kb_gaps = Table(
    "kb_gaps",
    metadata,
    Column("account_id", String(255), primary_key=True),
    Column("gap_id", String(64), primary_key=True),
    Column("query_text", Text, nullable=False),
    Column("filter_ctx", _ATTRIBUTES, nullable=False),
    Column("hit_count", BigInteger, nullable=False),
    Column("first_seen_at", BigInteger, nullable=False),
    Column("last_seen_at", BigInteger, nullable=False),
    Column("resolved_at", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    Index(None, "account_id", "hit_count"),
)

# Entities whose chunks in the index are behind: written with the change itself, removed once the index has caught up.
kb_outbox = Table(
    "kb_outbox",
    metadata,
    Column("account_id", String(255), primary_key=True),
    Column("entity_id", String(128), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False, index=True),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("claim", String(32), nullable=False),
    Column("claimed_until", BigInteger, nullable=False),
)
