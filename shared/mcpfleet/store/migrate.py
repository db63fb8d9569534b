"""Migrations: each service owns its tables, and numbers their revisions in its own package.

Every service has a history and a version table of its own, so it needs to know nothing of the others. Four growing
digits name a revision. A revision leaves the former release working, since a database may be ahead of a process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, column, inspect, select, table, text

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.store.engine import Store

if TYPE_CHECKING:
    from alembic.config import Config

_ENVIRONMENT: Final = Path(__file__).parent / "migrations"
_REVISION: Final = "revision_"
"""The beginning of each revision's file name; its number follows."""
_LOCK: Final = 0x6D6370666C656574
"""PostgreSQL's advisory lock of the migrating process; others wait, and then find nothing left to do."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The tables of one service."""

    service: str
    revisions: Path
    """The folder of its revisions."""

    @property
    def version_table(self) -> str:
        """The table that keeps the database's revision."""
        return f"{self.service}_revision"

    def newest(self) -> str:
        """The revision that this release needs."""
        numbers = [path.stem.removeprefix(_REVISION) for path in self.revisions.glob(f"{_REVISION}*.py")]
        assert numbers, f"{self.service} has no revisions"
        return max(numbers)


async def migrate(store: Store, schemas: Iterable[Schema]) -> dict[str, str]:
    """Bring the tables of services to the newest revisions of this release, all of them or none.

    Safe in several processes at once. A database that is ahead stays as it is. The store's bounds hold here too: a
    table that takes longer to change needs a larger MCPFLEET_STORE_TIMEOUT.

    Returns:
        The revision of each service that was not there yet.

    Raises:
        StoreError: the database is away, or another process held its lock for longer than a statement may take.
    """
    async with store.write() as connection:
        if store.dialect == "postgresql":
            # Nobody waits for an answer here: a lock may take as long as a statement.
            await connection.execute(text("SET LOCAL lock_timeout = 0"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        return await connection.run_sync(_upgrade, tuple(schemas))


async def check_migrated(store: Store, schema: Schema) -> None:
    """Refuse to serve on tables that are older than this release.

    Raises:
        ConfigurationError: they are, or are missing; the sentence names the command to run.
        StoreError: the database is away.
    """
    async with store.read() as connection:
        found = await connection.run_sync(_revision, schema)
    if not _reaches(found, schema.newest()):
        raise ConfigurationError(
            f"MCPFLEET_STORE_URL: the tables of {schema.service} at {store.where} are at revision {found or 'none'}, "
            f"and this release needs {schema.newest()}: run `mcpfleet migrate`"
        )


def _upgrade(connection: Connection, schemas: tuple[Schema, ...]) -> dict[str, str]:
    # Imported here: a service that finds its tables there does not pay for Alembic.
    from alembic import command  # noqa: PLC0415

    done = {}
    for schema in schemas:
        newest = schema.newest()
        if not _reaches(_revision(connection, schema), newest):
            command.upgrade(_config(schema, connection), newest)
            done[schema.service] = newest
    return done


def _revision(connection: Connection, schema: Schema) -> str | None:
    if not inspect(connection).has_table(schema.version_table):
        return None
    found: str | None = connection.scalar(select(column("version_num")).select_from(table(schema.version_table)))
    return found


def _reaches(found: str | None, needed: str) -> bool:
    return found is not None and found >= needed


def _config(schema: Schema, connection: Connection) -> Config:
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"options": {"connection": connection, "version_table": schema.version_table}})
    # The first, by its own syntax, would read a percent sign in a path as the start of a name.
    for name, path in (("script_location", _ENVIRONMENT), ("version_locations", schema.revisions)):
        config.set_main_option(name, str(path).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
