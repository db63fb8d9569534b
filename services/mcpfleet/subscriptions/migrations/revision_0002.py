"""The sessions of clients of the revisions of 2025, and the URIs that they subscribe to."""

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
        "subscriptions_sessions",
        sa.Column("session", sa.String(32), primary_key=True, comment="the digest of its id"),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("revision", sa.String(16), nullable=False),
        sa.Column("client", sa.Text, nullable=False, comment="JSON"),
        sa.Column("capabilities", sa.Text, nullable=False, comment="JSON"),
        sa.Column("log_level", sa.String(16)),
        sa.Column("stream", sa.String(32), comment="the newest GET stream"),
        sa.Column("former_stream", sa.String(32), comment="the newest before it"),
        sa.Column("lists", sa.Text, comment="JSON"),
        sa.Column("begun_at", sa.Double, nullable=False),
        sa.Column(
            "touched_at", sa.Double, nullable=False, comment="when it was used last, to a tenth of the idle time"
        ),
    )
    op.create_index("subscriptions_sessions_owner", "subscriptions_sessions", ["owner", "touched_at"])
    op.create_index("subscriptions_sessions_touched", "subscriptions_sessions", ["touched_at"])
    op.create_index("subscriptions_sessions_begun", "subscriptions_sessions", ["begun_at"])
    op.create_table(
        "subscriptions_session_uris",
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("uri_key", sa.String(32), primary_key=True),
        sa.Column("uri", sa.Text, nullable=False, comment="JSON, which has no NUL: PostgreSQL keeps none"),
    )
