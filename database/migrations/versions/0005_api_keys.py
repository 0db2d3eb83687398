"""API keys, which lay in a file of their own before."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("user_space", sa.Text, nullable=False),
        sa.Column("agent_space", sa.Text, nullable=False),
        sa.Column("spaces", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
    )


def downgrade() -> None:
    """Drop it, with all keys."""
    op.drop_table("api_keys")
