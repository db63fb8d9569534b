"""The tables of the tasks service: a narrow row for each task; large or many values are in tables of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

from sqlalchemy import Column, Index, Integer, MetaData, Row, String, Table, Text

from mcpfleet.contracts.manifest import DIGEST_LENGTH
from mcpfleet.contracts.tasks import KEY_LENGTH, MESSAGE_LENGTH, Status
from mcpfleet.store.migrate import Schema
from mcpfleet.store.sql import Moment

metadata: Final = MetaData()

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
"""A row of columns that the statement names."""

ID_LENGTH: Final = 64
NAME_LENGTH: Final = 63
TOOL_LENGTH: Final = 128
STATUS_LENGTH: Final = 16
WATCH: Final = 1
"""The only row of `watch`."""
GOING_ON: Final = (Status.WORKING, Status.INPUT_REQUIRED)
"""The statuses of a task that has not ended."""
BROUGHT: Final = (
    "id", "binding", "endpoint", "pool", "definition", "name", "origin_digest", "run_left", "retention", "poll_ms",
    "most_attempts", "size", "message", "policy",
)  # fmt: skip
"""The columns of `states` that a new task brings along."""

states: Final = Table(
    "tasks_states",
    metadata,
    Column("id", String(ID_LENGTH), primary_key=True),
    Column("binding", String(DIGEST_LENGTH), nullable=False, comment="names endpoint and principal"),
    Column("endpoint", String(NAME_LENGTH), nullable=False),
    Column("pool", String(NAME_LENGTH), nullable=False),
    Column("definition", String(DIGEST_LENGTH), nullable=False),
    Column("name", String(TOOL_LENGTH), nullable=False, comment="the tool's"),
    Column("origin_digest", String(DIGEST_LENGTH), nullable=False),
    Column("status", String(STATUS_LENGTH), nullable=False),
    Column("version", Integer, nullable=False, comment="grows with each change that a reader can see"),
    Column("fence", Integer, nullable=False, comment="grows with each claim, and when a holder is deprived"),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False, comment="the end, where it has ended"),
    Column("until", Moment, nullable=False, comment="when it ends by itself; after its end, when it is forgotten"),
    Column("run_left", Moment, nullable=False, comment="seconds of its run limit, while the limit does not run"),
    Column("retention", Moment, nullable=False, comment="seconds"),
    Column("poll_ms", Integer, nullable=False),
    Column("most_attempts", Integer, nullable=False),
    Column("attempts", Integer, nullable=False, comment="those that crashed or failed"),
    Column("vanished", Integer, nullable=False, comment="holders in a row that were not heard of again"),
    Column("size", Integer, nullable=False, comment="bytes of its origin in a message"),
    Column("memory", Integer, nullable=False, comment="bytes of its steps and answers in a message"),
    Column("questions", Integer, nullable=False, comment="those that have no answer"),
    Column("ready_at", Moment, comment="from when on it may be claimed; null where it may not"),
    Column("lease_until", Moment, comment="null where nobody holds it"),
    Column("holder", String(ID_LENGTH), comment="the process that holds it, or held it last"),
    Column("claim", String(DIGEST_LENGTH), comment="by which it was taken"),
    Column("cancel_at", Moment, comment="when its cancel was asked for"),
    Column("message", String(MESSAGE_LENGTH)),
    Column("progress", Moment, comment="the highest that its handlers said is reached"),
    Column("policy", Text),
    Column("end", Text, comment="the JSON text of its result, kept result, or error"),
)

origins: Final = Table(
    "tasks_origins",
    metadata,
    Column("task", String(ID_LENGTH), primary_key=True),
    Column("origin", Text, nullable=False, comment="what it was made from, byte for byte"),
)
"""A table of its own, since a state's row is written many times."""

inputs: Final = Table(
    "tasks_inputs",
    metadata,
    Column("task", String(ID_LENGTH), primary_key=True),
    Column("key", String(KEY_LENGTH), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("digest", String(DIGEST_LENGTH), nullable=False, comment="names the question"),
    Column("request", Text, nullable=False),
    Column("answer", Text, comment="null while it is outstanding"),
)

steps: Final = Table(
    "tasks_steps",
    metadata,
    Column("task", String(ID_LENGTH), primary_key=True),
    Column("key", String(DIGEST_LENGTH), primary_key=True),
    Column("name", String(KEY_LENGTH), nullable=False),
    Column("result", Text, nullable=False),
)

reservations: Final = Table(
    "tasks_reservations",
    metadata,
    Column("key", String(DIGEST_LENGTH), primary_key=True, comment="names endpoint, principal, tool and key"),
    Column("arguments", String(DIGEST_LENGTH), nullable=False),
    Column("pool", String(NAME_LENGTH), nullable=False, comment="whose worker may remember the result"),
    Column("state", String(STATUS_LENGTH), nullable=False),
    Column("fence", Integer, nullable=False),
    Column("holder", String(DIGEST_LENGTH), nullable=False),
    Column("lease_until", Moment, nullable=False, comment="the call's deadline"),
    Column("expires_at", Moment, nullable=False),
    Column("task", String(ID_LENGTH), comment="what the first call became"),
    Column("result", Text),
)

watch: Final = Table(
    "tasks_watch",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("proven_at", Moment, nullable=False, comment="when a replica last had both NATS and the store"),
    Column("grace_until", Moment, nullable=False, comment="no lease lapses before"),
)
"""One row, which shows since when holders can be heard."""

served: Final = Table(
    "tasks_served",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("definition", String(DIGEST_LENGTH), primary_key=True),
    Column("name", String(TOOL_LENGTH), nullable=False, comment="the tool's"),
    Column("since", Moment, nullable=False, comment="from when on its workers were heard without a gap"),
    Column("seen_at", Moment, nullable=False, comment="when a worker last said that it has it"),
)
"""The versions of tools that have workers. A task whose version has none moves to another version, or ends."""


def _partly(name: str, *columns: Column[float] | Column[str], where: Column[float]) -> Index:
    """An index of the rows that have a value in a column."""
    return Index(name, *columns, sqlite_where=where.is_not(None), postgresql_where=where.is_not(None))


_partly("tasks_states_ready", states.c.pool, states.c.ready_at, where=states.c.ready_at)
_partly("tasks_states_leases", states.c.lease_until, where=states.c.lease_until)
Index("tasks_states_until", states.c.until)
Index("tasks_reservations_expires_at", reservations.c.expires_at)

SCHEMA: Final = Schema(service="tasks", revisions=Path(__file__).parent / "migrations")
"""The revisions of these tables, each named by its number."""
