"""Which versions of tools have workers, so that a rollout leaves no task behind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make a table that the release before does not look at."""
    op.create_table(
        "tasks_served",
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("definition", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False, comment="the tool's"),
        sa.Column("since", sa.Double, nullable=False, comment="from when on its workers were heard without a gap"),
        sa.Column("seen_at", sa.Double, nullable=False, comment="when a worker last said that it has it"),
    )
