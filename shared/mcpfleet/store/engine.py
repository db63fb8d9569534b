"""The connections of one service to its database: bounded transactions for reading and for writing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

import anyio
import anyio.lowlevel
import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import Connection, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncTransaction, create_async_engine

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.shutdown import STORE, Departure
from mcpfleet.store.errors import (
    StoreBusy,
    StoreError,
    StoreUnreachable,
    all_busy,
    is_refusal,
    translated,
    unreachable,
)
from mcpfleet.store.settings import Bounds, Dialect, StoreSettings, StoreUrl, read_url, take_places
from mcpfleet.store.singles import MOST, SETTINGS, SingleRow, SingleStatements
from mcpfleet.store.sqlite import ShortTransactions, prepare

_WRITES: Final = "mcpfleet_writes"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_RELEASE: Final = 1.0
"""Seconds that returning a connection may take before it is dropped."""


class Store:
    """One database, as one service uses it; `open_store` makes it.

    Both kinds of transaction wait at most `Bounds.statement` seconds for a free connection, and then raise `StoreBusy`.
    Both raise `StoreUnreachable` while the database is away. A body works on the database and does nothing else.

    A cancelled task leaves its transaction within `_RELEASE` seconds, and nothing of it is written, unless it was being
    committed. PostgreSQL may hold its locks until the current statement ends, within its bound. On SQLite a
    transaction with its lock goes on to its end first, for at most `Bounds.transaction` seconds: a cancelled statement
    would go on in its thread, and nobody would wait for it. That end is milliseconds away, since nothing in it waits
    for others. The wait for the lock is cancelled, which goes in turns of `LOCK_TURN` seconds.
    """

    def __init__(
        self, url: StoreUrl, engine: AsyncEngine, bounds: Bounds, singles: SingleStatements | None = None
    ) -> None:
        self.dialect: Dialect = url.dialect
        self.singles = singles
        """Runs single statements; None unless the database is PostgreSQL and the opener wants it."""
        self.where = url.where
        self.is_closed = False
        """All its connections are closed."""
        self._bounds = bounds
        # PostgreSQL's default isolation takes a snapshot for each statement anyway, so reading needs no transaction.
        # SQLite's gives all its statements the same snapshot, at no cost.
        autocommit = {"isolation_level": "AUTOCOMMIT"} if url.dialect == "postgresql" else {}
        self._reading = engine.execution_options(**autocommit)
        self._writing = engine.execution_options(**{_WRITES: True})
        # These stand before the pool, which so never lets anybody wait: a cancelled wait in it may lose a place.
        self._places = anyio.Semaphore(bounds.connections)
        # SQLite has one writer at a time. Ours queue here in order; only the first waits in SQLite, which is unfair.
        self._writers = anyio.Semaphore(1 if url.dialect == "sqlite" else bounds.connections)
        is_sqlite = url.dialect == "sqlite"
        self.short = ShortTransactions(url.secret, url.where, bounds, self._writers) if is_sqlite else None
        """Runs transactions that a caller may wait for; None unless the database is SQLite."""

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a connection for statements that change nothing."""
        return self._transaction(self._reading, self._places)

    def write(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a transaction that commits at the end of its body, and rolls back if the body raises.

        On SQLite it takes the write lock at its beginning. A transaction that read first and wanted the lock later
        would fail at once, whatever the timeout, if another had written in between.
        """
        return self._transaction(self._writing, self._writers, self._places)

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine, *places: anyio.Semaphore) -> AsyncIterator[AsyncConnection]:
        is_certain = engine is self._writing
        try:
            async with AsyncExitStack() as held:
                if not await take_places(self._bounds, *places):
                    raise all_busy(self.where)
                for place in places:
                    held.callback(place.release)
                # This one translates errors from outside the body: the end of the bound, or of returning the
                # connection.
                with translated(self.where), anyio.fail_after(self._bounds.transaction):
                    connection = await self._connect(engine)
                    try:
                        # This one translates errors of statements, which decide whether the connection may be used
                        # again.
                        with translated(self.where):
                            transaction = await self._begin(connection)
                            with self._unbroken(self._bounds.transaction):
                                yield connection
                                self._check_open(connection)
                                is_certain = False
                                await transaction.commit()
                    except StoreUnreachable:
                        # A demoted server keeps its connections and refuses every write: never use this one again.
                        await connection.invalidate()
                        raise
                    finally:
                        await self._release(connection)
        except asyncio.CancelledError as error:
            error.is_undone = is_certain  # type: ignore[attr-defined]  # the owner of the deadline reads it
            raise
        except StoreError as error:
            cause = error.__cause__
            error.is_undone = is_certain or (engine is self._writing and cause is not None and is_refusal(cause))
            raise

    def _check_open(self, connection: AsyncConnection) -> None:
        """Refuse to commit on a lost connection: then it is certain that nothing was written."""
        if self.dialect == "postgresql":
            # The asynchronous interface would make a greenlet for it, at each commit.
            driver: Any = connection.sync_connection and connection.sync_connection.connection.driver_connection
            if driver is None or driver.is_closed():
                raise unreachable(self.where, ConnectionError("the connection was lost"))

    def _unbroken(self, seconds: float) -> AbstractContextManager[object]:
        """Shield statements that must not be cancelled, for a bounded time."""
        return anyio.fail_after(seconds, shield=True) if self.dialect == "sqlite" else nullcontext()

    async def _begin(self, connection: AsyncConnection) -> AsyncTransaction:
        """Begin; on SQLite, take the write lock within its bound."""
        deadline = anyio.current_time() + self._bounds.lock_wait
        while True:
            try:
                # Translate here as well: only the wait for another's lock goes in turns.
                with self._unbroken(self._bounds.statement), translated(self.where):
                    return await connection.begin()
            except StoreBusy:
                if self.dialect != "sqlite" or anyio.current_time() >= deadline:
                    raise
            await anyio.lowlevel.checkpoint()

    async def _connect(self, engine: AsyncEngine) -> AsyncConnection:
        try:
            with self._unbroken(self._bounds.connect):
                return await engine.connect()
        except Exception as error:  # whatever the error is, there is no connection
            raise unreachable(self.where, error) from error

    async def _release(self, connection: AsyncConnection) -> None:
        """Return the connection, rolled back unless it was committed."""
        with anyio.move_on_after(_RELEASE, shield=True):
            await connection.close()


@asynccontextmanager
async def open_store(
    url: str, *, service: str, bounds: Bounds, embedded: bool = False, singles: bool = False
) -> AsyncIterator[Store]:
    """Open the database of a service; nothing connects before the first transaction.

    Args:
        url: the value of MCPFLEET_STORE_URL.
        service: the name that PostgreSQL shows for the connections, after `mcpfleet-`.
        bounds: connections and times.
        embedded: all processes run on one host, as under `mcpfleet dev`: SQLite is allowed.
        singles: keep some connections for single statements, if the database is PostgreSQL.

    Raises:
        ConfigurationError: the address is malformed, or names SQLite, which is not allowed here.
    """
    try:
        address = read_url(url)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if address.dialect == "sqlite" and not embedded:
        raise ConfigurationError(
            "MCPFLEET_STORE_URL: SQLite serves one host only: use PostgreSQL, "
            "or `mcpfleet dev`, which sets MCPFLEET_EMBEDDED=true"
        )
    straight = None
    apart = min(MOST, bounds.connections - 1) if singles and address.dialect == "postgresql" else 0
    if apart:
        connect = partial(_connect, address, service, bounds, record_class=SingleRow, settings=SETTINGS)
        straight = SingleStatements(connect, address.where, bounds, apart)
        bounds = replace(bounds, connections=bounds.connections - apart)
    engine = (_sqlite if address.dialect == "sqlite" else _postgresql)(address, service, bounds)
    store = Store(address, engine, bounds, straight)
    try:
        yield store
    finally:
        with anyio.move_on_after(bounds.statement + _RELEASE, shield=True):
            await engine.dispose()
            if straight is not None:
                await straight.close()
            if store.short is not None:
                store.short.close()
            store.is_closed = True


@asynccontextmanager
async def store_of(
    settings: StoreSettings, service: str, *, singles: bool = False, departure: Departure | None = None
) -> AsyncIterator[Store]:
    """Open the database that the settings of a service name; see `open_store`.

    Args:
        settings: the service's.
        service: its name.
        singles: see `open_store`.
        departure: hears whether all connections were closed in time.
    """
    opened: Store | None = None
    if departure is not None:
        departure.expect(STORE)
    try:
        async with open_store(
            settings.store_url.get_secret_value(),
            service=service,
            bounds=settings.store_bounds,
            embedded=settings.embedded,
            singles=singles,
        ) as opened:
            yield opened
    finally:
        if departure is not None and opened is not None and opened.is_closed:
            departure.prove(STORE)


def _sqlite(url: StoreUrl, service: str, bounds: Bounds) -> AsyncEngine:  # noqa: ARG001 - the other one's signature
    engine = create_async_engine(f"sqlite+aiosqlite:///{url.secret}", **_pool(bounds))

    @event.listens_for(engine.sync_engine, "do_connect")
    def on_connecting(*_: object) -> None:
        """Open the file once: if that fails, aiosqlite leaves a thread that may outlive the loop."""
        sqlite3.connect(url.secret).close()

    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, record: object) -> None:  # noqa: ARG001
        # A close that is cancelled, and SQLAlchemy's close after it, each stop the thread. The thread answers one stop
        # only, so whoever waited for the second would wait for ever.
        driver = connection.driver_connection
        driver.stop = cache(driver.stop)
        connection.isolation_level = None  # or the driver begins transactions by itself
        prepare(connection, bounds)

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


async def _connect(
    url: StoreUrl,
    service: str,
    bounds: Bounds,
    *,
    record_class: type[asyncpg.Record] = asyncpg.Record,
    settings: Mapping[str, str] = _NOTHING,
) -> asyncpg.Connection:
    """Connect to PostgreSQL. asyncpg reads the address itself, so all of libpq's options work in it."""
    limit = f"{int(bounds.statement * 1000)}ms"
    return await asyncpg.connect(
        url.secret,
        timeout=bounds.connect,
        command_timeout=bounds.statement + _RELEASE,
        record_class=record_class,
        server_settings={
            "application_name": f"mcpfleet-{service}",
            "jit": "off",
            "statement_timeout": limit,
            "lock_timeout": f"{int(bounds.lock_wait * 1000)}ms",
            # A writer that is paused in its transaction must not keep its locks from others.
            "idle_in_transaction_session_timeout": limit,
            **settings,
        },
    )


def _postgresql(url: StoreUrl, service: str, bounds: Bounds) -> AsyncEngine:
    connect = partial(_connect, url, service, bounds)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, **_pool(bounds))

    @event.listens_for(engine.sync_engine, "checkout")
    def on_checkout(connection: Any, record: object, proxy: object) -> None:  # noqa: ARG001
        """Replace a connection that the server closed while it was idle, without asking the server."""
        if connection.driver_connection.is_closed():
            raise DisconnectionError

    return engine


def _pool(bounds: Bounds) -> dict[str, Any]:
    # Parameters stay out of error messages: they are manifests, and may be secrets.
    return {
        "pool_size": bounds.connections,
        "max_overflow": 0,
        "pool_timeout": bounds.statement,
        "hide_parameters": True,
    }
