"""Authorization's first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the counter with its one row, revocations, windows and takings."""
    counter = op.create_table(
        "authorization_counter",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False, comment="the newest revocation's"),
    )
    op.bulk_insert(counter, [{"id": 1, "number": 0}])
    op.create_table(
        "authorization_revocations",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("key", sa.String(32), nullable=False, comment="the digest of the name; empty for a policy"),
        sa.Column("id", sa.String(32), nullable=False, unique=True, comment="the asker's: asking twice revokes once"),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("authorization_revocations_at", "authorization_revocations", ["at"])
    op.create_table(
        "authorization_windows",
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column(
            "number", sa.BigInteger, nullable=False, comment="how many windows of its length have passed since 1970"
        ),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.Column("granted", sa.BigInteger, nullable=False, comment="to whom asked last"),
        sa.Column("ends_at", sa.Double, nullable=False),
    )
    op.create_index("authorization_windows_ends_at", "authorization_windows", ["ends_at"])
    op.create_table(
        "authorization_takings",
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("asker", sa.String(16), primary_key=True),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("granted", sa.BigInteger, nullable=False),
        sa.Column("ends_at", sa.Double, nullable=False),
    )
    op.create_index("authorization_takings_ends_at", "authorization_takings", ["ends_at"])
