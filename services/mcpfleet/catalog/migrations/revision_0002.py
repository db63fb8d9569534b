"""The files of pools, by digest, and the manifests that name them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make tables that the release before does not look at."""
    op.create_table(
        "catalog_manifest_files",
        sa.Column(
            "manifest",
            sa.String(32),
            sa.ForeignKey("catalog_manifests.digest", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("digest", sa.String(71), primary_key=True),
    )
    op.create_index("catalog_manifest_files_digest", "catalog_manifest_files", ["digest"])
    op.create_table(
        "catalog_files",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("digest", sa.String(71), primary_key=True, comment="sha256: and 64 digits, of all its bytes"),
        sa.Column("size", sa.BigInteger, nullable=False, comment="bytes"),
        sa.Column("is_whole", sa.Boolean, nullable=False, comment="all parts are there, and the digest is right"),
        sa.Column("unused_since", sa.Double, comment="null while a manifest names it"),
    )
    op.create_table(
        "catalog_file_chunks",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("digest", sa.String(71), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["pool", "digest"], ["catalog_files.pool", "catalog_files.digest"], ondelete="CASCADE"),
    )
