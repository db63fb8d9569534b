"""The first tables of the tasks service."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make states, origins, inputs, steps, reservations and the watch."""
    op.create_table(
        "tasks_states",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("binding", sa.String(32), nullable=False, comment="names endpoint and principal"),
        sa.Column("endpoint", sa.String(63), nullable=False),
        sa.Column("pool", sa.String(63), nullable=False),
        sa.Column("definition", sa.String(32), nullable=False),
        sa.Column("name", sa.String(128), nullable=False, comment="the tool's"),
        sa.Column("origin_digest", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False, comment="grows with each change that a reader can see"),
        sa.Column("fence", sa.Integer, nullable=False, comment="grows with each claim, and when a holder is deprived"),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False, comment="the end, where it has ended"),
        sa.Column(
            "until", sa.Double, nullable=False, comment="when it ends by itself; after its end, when it is forgotten"
        ),
        sa.Column(
            "run_left", sa.Double, nullable=False, comment="seconds of its run limit, while the limit does not run"
        ),
        sa.Column("retention", sa.Double, nullable=False, comment="seconds"),
        sa.Column("poll_ms", sa.Integer, nullable=False),
        sa.Column("most_attempts", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, comment="those that crashed or failed"),
        sa.Column("vanished", sa.Integer, nullable=False, comment="holders in a row that were not heard of again"),
        sa.Column("size", sa.Integer, nullable=False, comment="bytes of its origin in a message"),
        sa.Column("memory", sa.Integer, nullable=False, comment="bytes of its steps and answers in a message"),
        sa.Column("questions", sa.Integer, nullable=False, comment="those that have no answer"),
        sa.Column("ready_at", sa.Double, comment="from when on it may be claimed; null where it may not"),
        sa.Column("lease_until", sa.Double, comment="null where nobody holds it"),
        sa.Column("holder", sa.String(64), comment="the process that holds it, or held it last"),
        sa.Column("claim", sa.String(32), comment="by which it was taken"),
        sa.Column("cancel_at", sa.Double, comment="when its cancel was asked for"),
        sa.Column("message", sa.String(1000)),
        sa.Column("policy", sa.Text),
        sa.Column("end", sa.Text, comment="the JSON text of its result, kept result, or error"),
    )
    _partly("tasks_states_ready", ["pool", "ready_at"], "ready_at")
    _partly("tasks_states_leases", ["lease_until"], "lease_until")
    op.create_index("tasks_states_until", "tasks_states", ["until"])
    op.create_table(
        "tasks_origins",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("origin", sa.Text, nullable=False, comment="what it was made from, byte for byte"),
    )
    op.create_table(
        "tasks_inputs",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(256), primary_key=True),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(32), nullable=False, comment="names the question"),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, comment="null while it is outstanding"),
    )
    op.create_table(
        "tasks_steps",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("result", sa.Text, nullable=False),
    )
    op.create_table(
        "tasks_reservations",
        sa.Column("key", sa.String(32), primary_key=True, comment="names endpoint, principal, tool and key"),
        sa.Column("arguments", sa.String(32), nullable=False),
        sa.Column("pool", sa.String(63), nullable=False, comment="whose worker may remember the result"),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False, comment="the call's deadline"),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("task", sa.String(64), comment="what the first call became"),
        sa.Column("result", sa.Text),
    )
    op.create_index("tasks_reservations_expires_at", "tasks_reservations", ["expires_at"])
    op.create_table(
        "tasks_watch",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("proven_at", sa.Double, nullable=False, comment="when a replica last had both NATS and the store"),
        sa.Column("grace_until", sa.Double, nullable=False, comment="no lease lapses before"),
    )


def _partly(name: str, columns: list[str], where: str) -> None:
    """Index the rows alone that have a value there."""
    condition = sa.text(f"{where} IS NOT NULL")
    op.create_index(name, "tasks_states", columns, sqlite_where=condition, postgresql_where=condition)
