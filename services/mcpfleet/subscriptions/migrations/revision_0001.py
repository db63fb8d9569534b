"""The first tables of subscriptions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make edges, partitions and counts."""
    op.create_table(
        "subscriptions_edges",
        sa.Column("edge", sa.String(16), primary_key=True),
        sa.Column("leased_at", sa.Double, nullable=False),
    )
    op.create_table(
        "subscriptions_partitions",
        sa.Column("endpoint", sa.String(63), primary_key=True),
        sa.Column("partition", sa.String(32), primary_key=True),
    )
    op.create_table(
        "subscriptions_counts",
        sa.Column("edge", sa.String(16), primary_key=True),
        sa.Column("endpoint", sa.String(63), primary_key=True),
        sa.Column("partition", sa.String(32), primary_key=True),
        sa.Column("streams", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, comment="of the edge's message that said so"),
        sa.Column("changed_at", sa.Double, nullable=False),
    )
    op.create_index("subscriptions_counts_partition", "subscriptions_counts", ["endpoint", "partition"])
