"""Single statements straight on PostgreSQL's driver, for the few ways that every task goes.

A statement that is its own transaction costs one round trip instead of three, and a third of the processor's time. Its
plan uses indexes whatever the statistics say: tables grow from nothing to millions under a prepared statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import anyio
import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import ClauseElement
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.sql.compiler import SQLCompiler

from mcpfleet.store.errors import (
    DRIVER_ERRORS,
    StoreError,
    all_busy,
    is_away,
    is_refusal,
    translate,
    translated,
    unreachable,
)
from mcpfleet.store.settings import Bounds, take_places

SETTINGS: Final = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}
"""Settings of the server for these connections."""
MOST: Final = 4
"""Connections for this use: each of the ways that tasks go waits for itself alone."""

_DIALECT: Final = PGDialect_asyncpg()  # type: ignore[no-untyped-call]  # it has no annotations

Connect = Callable[[], Awaitable[Any]]
LateValues = Callable[[], tuple[object, ...] | None]


class Single(NamedTuple):
    """A statement as the driver takes it."""

    text: str
    """With numbered parameters."""
    names: tuple[str, ...]
    """The parameters, in their order."""

    def values(self, given: Mapping[str, object]) -> tuple[object, ...]:
        """The parameters' values, in their order."""
        return tuple(map(given.__getitem__, self.names))


def single(statement: ClauseElement) -> Single:
    """Compile a statement of SQLAlchemy's, whose parameters all have names."""
    compiled = statement.compile(dialect=_DIALECT)
    assert isinstance(compiled, SQLCompiler)
    return Single(compiled.string, tuple(compiled.positiontup or ()))


class SingleRow(asyncpg.Record):  # type: ignore[misc]  # it ships no types
    """A row whose columns are attributes, as in a row of SQLAlchemy."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class _Sent:
    """Whether a statement was sent."""

    is_sent = False


class SingleStatements:
    """A few connections of their own. Each method raises `StoreError`, as a transaction of the store does."""

    def __init__(self, connect: Connect, where: str, bounds: Bounds, most: int) -> None:
        """Describe the connections.

        Args:
            connect: makes one connection.
            where: the database, as it may be printed.
            bounds: the times of all waits.
            most: the number of connections.
        """
        self._connect = connect
        self._where = where
        self._bounds = bounds
        self._places = anyio.Semaphore(most, fast_acquire=True)
        self._free: list[Any] = []

    async def fetch(
        self, statement: str, *values: object, writes: bool = False, late: LateValues | None = None
    ) -> list[SingleRow]:
        """Run one statement by itself, which commits it; a repeat after an error must be safe.

        Args:
            statement: has numbered parameters.
            values: the parameters.
            writes: it changes something, so its error states whether it may have (`StoreError.is_undone`).
            late: makes the values just before they are sent; None if nothing is wanted any more.
        """
        sent = _Sent()
        try:
            if not await take_places(self._bounds, self._places):
                raise all_busy(self._where)
            try:
                with translated(self._where):
                    return await self._run(statement, (lambda: values) if late is None else late, sent)
            finally:
                self._places.release()
        except asyncio.CancelledError as error:
            error.is_undone = writes and not sent.is_sent  # type: ignore[attr-defined]  # as `Store` does
            raise
        except StoreError as error:
            cause = error.__cause__
            error.is_undone = writes and (not sent.is_sent or (cause is not None and is_refusal(cause)))
            raise

    async def close(self) -> None:
        """Close all open connections."""
        for connection in self._free:
            connection.terminate()
        self._free.clear()

    async def _run(self, statement: str, late: LateValues, sent: _Sent) -> list[SingleRow]:
        connection = await self._open()
        values = late()
        if values is None:
            self._free.append(connection)
            return []
        sent.is_sent = True
        try:
            rows: list[SingleRow] = await connection.fetch(statement, *values)
        except (asyncpg.PostgresError, asyncpg.DataError) as error:
            # A refused statement leaves the connection as it was, unless the server takes no writes.
            if not is_away(error) and not connection.is_closed():
                self._free.append(connection)
            else:
                connection.terminate()
            raise
        except Exception as error:  # any other error of the driver is about the connection, which is not used again
            connection.terminate()
            known = isinstance(error, DRIVER_ERRORS)
            raise (translate if known else unreachable)(self._where, error) from error
        except BaseException:
            connection.terminate()  # its statement may go on, or its answer may be on the way
            raise
        self._free.append(connection)
        return rows

    async def _open(self) -> Any:
        """Return a connection, the last used one first; the server may have closed the others meanwhile."""
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        try:
            return await self._connect()
        except Exception as error:  # whatever the error is, there is no connection
            raise unreachable(self._where, error) from error
