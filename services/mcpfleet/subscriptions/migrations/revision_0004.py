"""The places of workers: which worker has the connection of a key to a source."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "subscriptions_place_workers",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("worker", sa.String(64), primary_key=True),
        sa.Column("leased_at", sa.Double, nullable=False),
    )
    op.create_table(
        "subscriptions_places",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("worker", sa.String(64), nullable=False),
        sa.Column("claim", sa.String(32), nullable=False, comment="names this taking of it"),
    )
    op.create_index("subscriptions_places_worker", "subscriptions_places", ["pool", "worker"])
