"""The URIs of sessions as grants: each with its lease, its holder, and whether a change was not told yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TABLE = "subscriptions_session_uris"


def upgrade() -> None:
    """Add columns that the release before leaves empty: its rows are grants without a lease."""
    for column in (
        sa.Column("generation", sa.Integer),
        sa.Column("endpoint", sa.String(63)),
        sa.Column("pool", sa.String(63), comment="that serves the URI"),
        sa.Column("principal", sa.Text, comment="JSON"),
        sa.Column("number", sa.BigInteger, comment="of the newest revocation that its admission included"),
        sa.Column("credential_until", sa.Double),
        sa.Column("lease_until", sa.Double),
        sa.Column("total_until", sa.Double),
        sa.Column("asked_at", sa.Double, comment="when its renewal was begun"),
        sa.Column("dirty", sa.Integer, comment="the number of a change that was not told; 0 or NULL for none"),
    ):
        op.add_column(_TABLE, column)
    op.add_column(
        "subscriptions_sessions", sa.Column("stream_at", sa.Double, comment="when it got or lost its streams")
    )
    op.create_index("subscriptions_session_uris_lease", _TABLE, ["lease_until"])
    op.create_index("subscriptions_session_uris_key", _TABLE, ["uri_key", "endpoint"])
