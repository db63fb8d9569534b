"""The tables of subscriptions: which edges live, and how many streams of whom each of them has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table

from mcpfleet.contracts.manifest import DIGEST_LENGTH
from mcpfleet.store.clock import Moment
from mcpfleet.store.migrate import Schema

metadata: Final = MetaData()

EDGE_LENGTH: Final = 16
NAME_LENGTH: Final = 63

edges: Final = Table(
    "subscriptions_edges",
    metadata,
    Column("edge", String(EDGE_LENGTH), primary_key=True),
    Column("leased_at", Moment, nullable=False),
)
"""A row is an edge that lives: what is counted for others does not count."""

partitions: Final = Table(
    "subscriptions_partitions",
    metadata,
    Column("endpoint", String(NAME_LENGTH), primary_key=True),
    Column("partition", String(DIGEST_LENGTH), primary_key=True),
)
"""A row is locked by who counts its streams, so that two edges do not both take the last place."""

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

SCHEMA: Final = Schema(service="subscriptions", revisions=Path(__file__).parent / "migrations")
