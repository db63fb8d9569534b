"""The tables of subscriptions: live edges, their streams by partition, sessions of clients, and places of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text

from mcpfleet.contracts.manifest import DIGEST_LENGTH
from mcpfleet.store.migrate import Schema
from mcpfleet.store.sql import Moment

metadata: Final = MetaData()

EDGE_LENGTH: Final = 16
NAME_LENGTH: Final = 63
REVISION_LENGTH: Final = 16
LEVEL_LENGTH: Final = 16
PROCESS_LENGTH: Final = 64

edges: Final = Table(
    "subscriptions_edges",
    metadata,
    Column("edge", String(EDGE_LENGTH), primary_key=True),
    Column("leased_at", Moment, nullable=False),
)
"""One row for each live edge; the counts of other edges do not count."""

partitions: Final = Table(
    "subscriptions_partitions",
    metadata,
    Column("endpoint", String(NAME_LENGTH), primary_key=True),
    Column("partition", String(DIGEST_LENGTH), primary_key=True),
)
"""A row is locked while its streams are counted, so that two edges do not both take the last place."""

counts: Final = Table(
    "subscriptions_counts",
    metadata,
    Column("edge", String(EDGE_LENGTH), primary_key=True),
    Column("endpoint", String(NAME_LENGTH), primary_key=True),
    Column("partition", String(DIGEST_LENGTH), primary_key=True),
    Column("streams", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False, comment="of the edge's message that said so"),
    Column("changed_at", Moment, nullable=False),
)

Index("subscriptions_counts_partition", counts.c.endpoint, counts.c.partition)

sessions: Final = Table(
    "subscriptions_sessions",
    metadata,
    Column("session", String(DIGEST_LENGTH), primary_key=True, comment="the digest of its id"),
    Column("owner", String(DIGEST_LENGTH), nullable=False),
    Column("revision", String(REVISION_LENGTH), nullable=False),
    Column("client", Text, nullable=False, comment="JSON"),
    Column("capabilities", Text, nullable=False, comment="JSON"),
    Column("log_level", String(LEVEL_LENGTH)),
    Column("stream", String(DIGEST_LENGTH), comment="the newest GET stream"),
    Column("former_stream", String(DIGEST_LENGTH), comment="the newest before it"),
    Column("stream_at", Moment, comment="when it got or lost its streams"),
    Column("lists", Text, comment="JSON"),
    Column("begun_at", Moment, nullable=False),
    Column("touched_at", Moment, nullable=False, comment="when it was used last, to a tenth of the idle time"),
)
"""One row for each session of a client of a 2025 revision, whichever edge its requests reach (D11)."""

# The first finds an owner's longest unused session, the others find sessions that are over.
Index("subscriptions_sessions_owner", sessions.c.owner, sessions.c.touched_at)
Index("subscriptions_sessions_touched", sessions.c.touched_at)
Index("subscriptions_sessions_begun", sessions.c.begun_at)

session_uris: Final = Table(
    "subscriptions_session_uris",
    metadata,
    Column("session", String(DIGEST_LENGTH), primary_key=True),
    Column("uri_key", String(DIGEST_LENGTH), primary_key=True),
    Column("uri", Text, nullable=False, comment="JSON, which has no NUL: PostgreSQL keeps none"),
    Column("generation", Integer),
    Column("endpoint", String(NAME_LENGTH)),
    Column("pool", String(NAME_LENGTH), comment="that serves the URI"),
    Column("principal", Text, comment="JSON"),
    Column("number", BigInteger, comment="of the newest revocation that its admission included"),
    Column("credential_until", Moment),
    Column("lease_until", Moment),
    Column("total_until", Moment),
    Column("asked_at", Moment, comment="when its renewal was begun"),
    Column("dirty", Integer, comment="the number of a change that was not told; 0 or NULL for none"),
)
"""One row for each URI to which a session subscribes: its grant. One of the former release has no lease."""

# The first finds the grants to renew, the second those that a hint concerns.
Index("subscriptions_session_uris_lease", session_uris.c.lease_until)
Index("subscriptions_session_uris_key", session_uris.c.uri_key, session_uris.c.endpoint)

place_workers: Final = Table(
    "subscriptions_place_workers",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("worker", String(PROCESS_LENGTH), primary_key=True),
    Column("leased_at", Moment, nullable=False),
)
"""One row for each worker that has places."""

places: Final = Table(
    "subscriptions_places",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("key", String(DIGEST_LENGTH), primary_key=True),
    Column("worker", String(PROCESS_LENGTH), nullable=False),
    Column("claim", String(DIGEST_LENGTH), nullable=False, comment="names this taking of it"),
)
"""One row for each key whose connection a worker has (B16)."""

Index("subscriptions_places_worker", places.c.pool, places.c.worker)

SCHEMA: Final = Schema(service="subscriptions", revisions=Path(__file__).parent / "migrations")
