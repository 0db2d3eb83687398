"""The memory gateway: users, their resources, tombstones, overrides and agents."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "gateway_users",
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("key_hash", sa.Text, nullable=False),
        sa.Column("account_id", sa.String(255), nullable=False),
        sa.Column("space", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_gateway_users"),
        sa.UniqueConstraint("account_id", "space", name="uq_gateway_users_account_id_space"),
    )
    _of_user(
        "gateway_resources",
        sa.Column("resource_id", sa.String(256), nullable=False),
        sa.Column("session_id", sa.String(1024), nullable=False),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("user_id", "session_id", name="uq_gateway_resources_user_id_session_id"),
    )
    _of_user(
        "gateway_tombstones",
        sa.Column("memory_id", sa.String(1024), nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    _of_user(
        "gateway_overrides",
        sa.Column("memory_id", sa.String(1024), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    _of_user(
        "gateway_agents",
        sa.Column("agent_id", sa.String(256), nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop them, and with them all that the gateway knew."""
    for name in ("agents", "overrides", "tombstones", "resources", "users"):
        op.drop_table(f"gateway_{name}")


def _of_user(name: str, key: "sa.Column[str]", *others: sa.schema.SchemaItem) -> None:
    """A table of what belongs to users, which goes with them."""
    op.create_table(
        name,
        sa.Column("user_id", sa.String(256), nullable=False),
        key,
        *others,
        sa.PrimaryKeyConstraint("user_id", key.name, name=f"pk_{name}"),
        sa.ForeignKeyConstraint(
            ["user_id"], ["gateway_users.user_id"], name=f"fk_{name}_user_id_gateway_users", ondelete="CASCADE"
        ),
    )
