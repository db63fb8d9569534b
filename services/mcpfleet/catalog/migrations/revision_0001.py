"""The catalog's first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make manifests, workers, pools and endpoints."""
    op.create_table(
        "catalog_manifests",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("body", sa.Text, nullable=False, comment="the exact text that the digest names"),
        sa.Column("first_announced", sa.Double, nullable=False),
    )
    op.create_table(
        "catalog_workers",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("process", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(32), sa.ForeignKey("catalog_manifests.digest"), nullable=False),
        sa.Column("announced_at", sa.Double, nullable=False),
    )
    op.create_index("catalog_workers_digest", "catalog_workers", ["digest"])
    op.create_index("catalog_workers_announced_at", "catalog_workers", ["announced_at"])
    op.create_table(
        "catalog_pools",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column(
            "digest",
            sa.String(32),
            sa.ForeignKey("catalog_manifests.digest"),
            nullable=False,
            comment="the manifest that it lists",
        ),
        sa.Column("since", sa.Double, nullable=False, comment="who came first keeps a name that two claim"),
        sa.Column("emptied_at", sa.Double, comment="when its last worker went; null while it has one"),
    )
    op.create_table(
        "catalog_endpoints",
        sa.Column("endpoint", sa.String(63), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, comment="grows by one with each change of the body"),
        sa.Column("revision", sa.BigInteger, nullable=False, comment="MCPFLEET_CATALOG_REVISION of who merged it"),
        sa.Column("settings", sa.String(32), nullable=False, comment="names the settings that it was merged by"),
        sa.Column("inputs", sa.String(32), nullable=False, comment="names what the pools listed then"),
        sa.Column("digest", sa.String(32), nullable=False, comment="names the merged catalog without its number"),
        sa.Column("body", sa.Text, nullable=False, comment="the snapshot's JSON text"),
    )
