"""Authorization's tables: numbered revocations, and how much of each limit's window is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table

from mcpfleet.contracts.manifest import DIGEST_LENGTH
from mcpfleet.store.migrate import Schema
from mcpfleet.store.sql import Moment

metadata: Final = MetaData()

COUNTER: Final = 1
"""The key of the counter's one row."""
ASKER_LENGTH: Final = 16

counter: Final = Table(
    "authorization_counter",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False, comment="the newest revocation's"),
)
"""One row. A revocation locks it until the commit, so numbers become visible in their order."""

revocations: Final = Table(
    "authorization_revocations",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("key", String(DIGEST_LENGTH), nullable=False, comment="the digest of the name; empty for a policy"),
    Column("id", String(DIGEST_LENGTH), nullable=False, unique=True, comment="the asker's: asking twice revokes once"),
    Column("at", Moment, nullable=False),
)

windows: Final = Table(
    "authorization_windows",
    metadata,
    Column("key", String(DIGEST_LENGTH), primary_key=True),
    Column("number", BigInteger, nullable=False, comment="how many windows of its length have passed since 1970"),
    Column("used", BigInteger, nullable=False),
    Column("granted", BigInteger, nullable=False, comment="to whom asked last"),
    Column("ends_at", Moment, nullable=False),
)
"""One row for each limit in use; it is deleted some time after its window."""

takings: Final = Table(
    "authorization_takings",
    metadata,
    Column("key", String(DIGEST_LENGTH), primary_key=True),
    Column("asker", String(ASKER_LENGTH), primary_key=True),
    Column("id", String(DIGEST_LENGTH), nullable=False),
    Column("granted", BigInteger, nullable=False),
    Column("ends_at", Moment, nullable=False),
)
"""Each asker's last taking. An asker has one question for a key at a time, so only its last one may come again."""

Index("authorization_revocations_at", revocations.c.at)
Index("authorization_windows_ends_at", windows.c.ends_at)
Index("authorization_takings_ends_at", takings.c.ends_at)

SCHEMA: Final = Schema(service="authorization", revisions=Path(__file__).parent / "migrations")
