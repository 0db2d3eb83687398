"""Switches between the two paths of a corpus."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "switches",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("percent", sa.Integer, nullable=False),
        sa.Column("shadow", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_switches"),
    )


def downgrade() -> None:
    """Drop it; the settings hold again."""
    op.drop_table("switches")
