"""How far tasks said that they are, so that a status message never goes back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that the release before leaves empty."""
    op.add_column(
        "tasks_states", sa.Column("progress", sa.Double, comment="the highest that its handlers said is reached")
    )
