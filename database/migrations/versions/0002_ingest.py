"""The durable ingest: its jobs, and what is stored of each source."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "ingest_jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("receipt_id", sa.String(32), nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("corpus", sa.Text, nullable=False),
        sa.Column("space", sa.Text, nullable=False),
        sa.Column("source_id", sa.Text, nullable=False),
        sa.Column("source_key", sa.String(32), nullable=False),
        sa.Column("action", sa.String(8), nullable=False),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("step", sa.String(8), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ingest_jobs"),
    )
    op.create_index("ix_ingest_jobs_due_at", "ingest_jobs", ["due_at", "id"])
    op.create_index("ix_ingest_jobs_source_key", "ingest_jobs", ["source_key", "id"])
    op.create_index("ix_ingest_jobs_receipt_id", "ingest_jobs", ["receipt_id"])
    op.create_index("ix_ingest_jobs_account_id", "ingest_jobs", ["account_id", "state"])
    op.create_index("ix_ingest_jobs_state", "ingest_jobs", ["state", "updated_at"])
    op.create_table(
        "ingest_sources",
        sa.Column("source_key", sa.String(32), nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("corpus", sa.Text, nullable=False),
        sa.Column("space", sa.Text, nullable=False),
        sa.Column("source_id", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.String(32), nullable=False),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("source_key", name="pk_ingest_sources"),
    )
    op.create_index("ix_ingest_sources_account_id", "ingest_sources", ["account_id", "corpus", "space"])
    op.create_index("ix_ingest_sources_expires_at", "ingest_sources", ["expires_at"])


def downgrade() -> None:
    """Drop them, with all work that waits."""
    op.drop_table("ingest_sources")
    op.drop_table("ingest_jobs")
