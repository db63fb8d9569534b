"""The catalog's tables: who announced what, what each pool lists, and each endpoint's newest snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

from mcpfleet.contracts.manifest import DIGEST_LENGTH, FILE_DIGEST_LENGTH
from mcpfleet.store.migrate import Schema
from mcpfleet.store.sql import Moment

metadata: Final = MetaData()

NAME_LENGTH: Final = 63
PROCESS_LENGTH: Final = 64

manifests: Final = Table(
    "catalog_manifests",
    metadata,
    Column("digest", String(DIGEST_LENGTH), primary_key=True),
    Column("body", Text, nullable=False, comment="the exact text that the digest names"),
    Column("first_announced", Moment, nullable=False),
)
"""One row for each manifest that a worker announces or a pool lists; it is deleted with the last of them."""

workers: Final = Table(
    "catalog_workers",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("process", String(PROCESS_LENGTH), primary_key=True),
    Column("digest", ForeignKey(manifests.c.digest), nullable=False),
    Column("announced_at", Moment, nullable=False),
)
"""One row for each live worker; it is deleted when the worker leaves, or is silent for too long on a proven link."""

pools: Final = Table(
    "catalog_pools",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("digest", ForeignKey(manifests.c.digest), nullable=False, comment="the manifest that it lists"),
    Column("since", Moment, nullable=False, comment="who came first keeps a name that two claim"),
    Column("emptied_at", Moment, comment="when its last worker went; null while it has one"),
)

endpoints: Final = Table(
    "catalog_endpoints",
    metadata,
    Column("endpoint", String(NAME_LENGTH), primary_key=True),
    Column("number", BigInteger, nullable=False, comment="grows by one with each change of the body"),
    Column("revision", BigInteger, nullable=False, comment="MCPFLEET_CATALOG_REVISION of who merged it"),
    Column("settings", String(DIGEST_LENGTH), nullable=False, comment="names the settings that it was merged by"),
    Column("inputs", String(DIGEST_LENGTH), nullable=False, comment="names what the pools listed then"),
    Column("digest", String(DIGEST_LENGTH), nullable=False, comment="names the merged catalog without its number"),
    Column("body", Text, nullable=False, comment="the snapshot's JSON text"),
)
"""A row outlives its endpoint's setting, so that the number never falls."""

manifest_files: Final = Table(
    "catalog_manifest_files",
    metadata,
    Column("manifest", ForeignKey(manifests.c.digest, ondelete="CASCADE"), primary_key=True),
    Column("digest", String(FILE_DIGEST_LENGTH), primary_key=True),
)
"""One row for each file that a manifest names; a release without files wrote none."""

files: Final = Table(
    "catalog_files",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("digest", String(FILE_DIGEST_LENGTH), primary_key=True, comment="sha256: and 64 digits, of all its bytes"),
    Column("size", BigInteger, nullable=False, comment="bytes"),
    Column("is_whole", Boolean, nullable=False, comment="all parts are there, and the digest is right"),
    Column("unused_since", Moment, comment="null while a manifest names it"),
)

chunks: Final = Table(
    "catalog_file_chunks",
    metadata,
    Column("pool", String(NAME_LENGTH), primary_key=True),
    Column("digest", String(FILE_DIGEST_LENGTH), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    ForeignKeyConstraint(["pool", "digest"], [files.c.pool, files.c.digest], ondelete="CASCADE"),
)
"""The bytes of files, in parts that fit a message."""

Index("catalog_manifest_files_digest", manifest_files.c.digest)
Index("catalog_workers_digest", workers.c.digest)
Index("catalog_workers_announced_at", workers.c.announced_at)

SCHEMA: Final = Schema(service="catalog", revisions=Path(__file__).parent / "migrations")
