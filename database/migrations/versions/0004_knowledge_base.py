"""The knowledge base: entities, chunks, assets, gaps, and the outbox of the index."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

_TABLES = ("kb_outbox", "kb_gaps", "kb_assets", "kb_chunks", "kb_entities")


def upgrade() -> None:
    """Make the tables."""
    attributes = sa.JSON().with_variant(JSONB(), "postgresql")
    op.create_table(
        "kb_entities",
        sa.Column("account_id", sa.String(255), nullable=False),
        sa.Column("entity_id", sa.String(128), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("attrs", attributes, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "entity_id", name="pk_kb_entities"),
        sa.CheckConstraint("status IN ('draft', 'published', 'archived')", name="ck_kb_entities_status"),
    )
    op.create_table(
        "kb_chunks",
        sa.Column("account_id", sa.String(255), nullable=False),
        sa.Column("chunk_id", sa.String(128), nullable=False),
        sa.Column("entity_id", sa.String(128), nullable=False),
        sa.Column("chunk_type", sa.String(32), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("embedding_model", sa.String(255), nullable=False),
        sa.Column("embedding_version", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "chunk_id", name="pk_kb_chunks"),
        _of_entity("kb_chunks"),
        sa.CheckConstraint("embedding_model <> '' AND embedding_version <> ''", name="ck_kb_chunks_embedded"),
    )
    op.create_index("ix_kb_chunks_account_id_entity_id", "kb_chunks", ["account_id", "entity_id"])
    op.create_table(
        "kb_assets",
        sa.Column("account_id", sa.String(255), nullable=False),
        sa.Column("asset_id", sa.String(128), nullable=False),
        sa.Column("entity_id", sa.String(128), nullable=False),
        sa.Column("asset_type", sa.String(32), nullable=False),
        sa.Column("storage_key", sa.String(1024), nullable=False),
        sa.Column("spec_check", attributes, nullable=False),
        sa.Column("tryon_ready", sa.Boolean, nullable=False),
        sa.Column("review_status", sa.String(32), nullable=False),
        sa.Column("licence", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "asset_id", name="pk_kb_assets"),
        _of_entity("kb_assets"),
    )
    op.create_index("ix_kb_assets_account_id_entity_id", "kb_assets", ["account_id", "entity_id"])
    op.create_index(
        "ix_kb_assets_tryon_ready",
        "kb_assets",
        ["account_id", "entity_id"],
        sqlite_where=sa.text("tryon_ready = 1"),
        postgresql_where=sa.text("tryon_ready"),
    )
    op.create_table(
        "kb_gaps",
        sa.Column("account_id", sa.String(255), nullable=False),
        sa.Column("gap_id", sa.String(64), nullable=False),
        sa.Column("query_text", sa.Text, nullable=False),
        sa.Column("filter_ctx", attributes, nullable=False),
        sa.Column("hit_count", sa.BigInteger, nullable=False),
        sa.Column("first_seen_at", sa.BigInteger, nullable=False),
        sa.Column("last_seen_at", sa.BigInteger, nullable=False),
        sa.Column("resolved_at", sa.BigInteger, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "gap_id", name="pk_kb_gaps"),
    )
    op.create_index("ix_kb_gaps_account_id_hit_count", "kb_gaps", ["account_id", "hit_count"])
    op.create_table(
        "kb_outbox",
        sa.Column("account_id", sa.String(255), nullable=False),
        sa.Column("entity_id", sa.String(128), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("claim", sa.String(32), nullable=False),
        sa.Column("claimed_until", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "entity_id", name="pk_kb_outbox"),
    )
    op.create_index("ix_kb_outbox_due_at", "kb_outbox", ["due_at"])


def downgrade() -> None:
    """Drop them, with all that they hold."""
    for table in _TABLES:
        op.drop_table(table)


def _of_entity(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["account_id", "entity_id"],
        ["kb_entities.account_id", "kb_entities.entity_id"],
        name=f"fk_{table}_account_id_entity_id_kb_entities",
        ondelete="CASCADE",
    )
