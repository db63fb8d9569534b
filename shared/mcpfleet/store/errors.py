"""The store's errors, and the one place that reads the drivers' errors."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import exc
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

DRIVER_ERRORS: Final = (
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    sqlite3.Error,
    sqlite3.Warning,
    OSError,
    EOFError,
)
"""Base classes of all drivers' errors: a server's, their own, and those of sockets."""

_UNREACHABLE_STATES: Final = ("08", "25006", "53", "57P", "58")
"""SQLSTATE of a server that is away, full, starting, stopping, or demoted to a standby."""
_BUSY_STATES: Final = ("25P03", "25P04", "40", "55P03", "57014")
"""SQLSTATE of a transaction that waited or ran too long, or lost against another: it did nothing."""
_UNREACHABLE_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
_CONFLICT_STATES: Final = ("23",)
"""SQLSTATE of a statement that would break a foreign key or a unique value."""
_CONFLICT_CODES: Final = frozenset({sqlite3.SQLITE_CONSTRAINT})
"""SQLite's code of the same."""
_BUSY_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_SCHEMA,
    }
)
_LEAVING_STATES: Final = ("08", "57P", "58", "40003")
"""SQLSTATE of a server that ends the connection, or does not know the outcome of the transaction."""
_LOST_STATE: Final = (
    exc.DisconnectionError,
    exc.PendingRollbackError,
    exc.ResourceClosedError,
    exc.InvalidatePoolError,
)
"""SQLAlchemy's errors for a lost connection."""
_PRIMARY: Final = 0xFF
"""SQLite's extended result codes carry the primary code in their low byte."""


class StoreError(Exception):
    """Raised when the store could not do its work; the base of all errors of this package while a service runs.

    Attributes:
        is_undone: a transaction that writes has failed, and certainly wrote nothing. False says nothing: a commit may
            have had no answer, or only a reading failed.
    """

    is_undone = False


class StoreUnreachable(StoreError):
    """Raised when no connection to the database could be made, or it was lost.

    A transaction may be written though its connection was lost in the commit. So writers are safe to repeat.
    """


class StoreBusy(StoreError):
    """Raised when a connection, a lock or a statement took longer than its bound."""


class StoreRefused(StoreError):
    """Raised when the database refuses a statement: a table or a column is missing, or a value breaks a rule."""


class StoreConflict(StoreRefused):
    """Raised when a write breaks a constraint between rows: another process may have written one meanwhile."""


OUTAGES: Final = (StoreUnreachable, StoreBusy)
"""Errors that pass by themselves; a refused statement is a mistake of ours or of the set-up."""


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn all errors of drivers into store errors.

    Args:
        where: the database, as it may be printed.
    """
    try:
        yield
    except (*DRIVER_ERRORS, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        raise translate(where, error) from error


def is_cancelled() -> bool:
    """Return whether the running task is cancelled; otherwise a `CancelledError` is the driver's own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def translate(where: str, error: BaseException) -> StoreError:
    """Return the store error for an error of a driver."""
    cause = _drivers_own(error)
    is_gone = isinstance(error, _LOST_STATE) or (isinstance(error, DBAPIError) and error.connection_invalidated)
    if isinstance(cause, TimeoutError | exc.TimeoutError):
        return StoreBusy(f"the store at {where} did not answer in time (MCPFLEET_STORE_TIMEOUT)")
    if _is(cause, _BUSY_STATES, _BUSY_CODES):
        return StoreBusy(f"the store at {where} is busy (MCPFLEET_STORE_TIMEOUT): {_first_line(cause)}")
    if is_gone or is_away(cause):
        return unreachable(where, cause)
    kind = StoreConflict if _is(cause, _CONFLICT_STATES, _CONFLICT_CODES) else StoreRefused
    return kind(f"the store at {where} refused a statement: {_first_line(cause)}")


def is_away(cause: BaseException) -> bool:
    """Return whether a driver's error says that the database is away or takes no writes."""
    if isinstance(cause, asyncpg.InterfaceError):
        return not isinstance(cause, asyncpg.DataError)  # a value that it cannot write leaves the connection as it was
    if isinstance(cause, OSError | EOFError | asyncpg.InternalClientError | asyncio.CancelledError):
        return True
    return _is(cause, _UNREACHABLE_STATES, _UNREACHABLE_CODES)


def is_refusal(error: BaseException) -> bool:
    """Return whether a driver's error is the database's word that the commit did not happen."""
    cause = _drivers_own(error)
    if isinstance(cause, sqlite3.Error | asyncpg.DataError):
        return True
    state: str | None = getattr(cause, "sqlstate", None)
    return state is not None and not state.startswith(_LEAVING_STATES)


def all_busy(where: str) -> StoreBusy:
    """Return the error that no connection to the database is free."""
    return StoreBusy(f"all connections to the store at {where} are busy (MCPFLEET_STORE_CONNECTIONS)")


def unreachable(where: str, cause: BaseException) -> StoreUnreachable:
    """Return the error that the database is away, with the reason and the setting that names it."""
    why = _first_line(_drivers_own(cause))
    return StoreUnreachable(f"the store at {where} cannot be reached (MCPFLEET_STORE_URL): {why}")


def _drivers_own(cause: BaseException) -> BaseException:
    """Return the driver's error behind SQLAlchemy's, and behind its adapter's if that has no state of its own."""
    if isinstance(cause, StatementError):
        cause = cause.orig or cause
    inner = cause.__cause__
    has_state = getattr(cause, "sqlstate", None) is not None or isinstance(cause, sqlite3.Error)
    return inner if not has_state and isinstance(inner, DRIVER_ERRORS) else cause


def _is(cause: BaseException, states: tuple[str, ...], codes: frozenset[int]) -> bool:
    """Return whether the driver's error carries one of PostgreSQL's states or SQLite's codes."""
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & _PRIMARY in codes
    state: str | None = getattr(cause, "sqlstate", None)
    return state is not None and state.startswith(states)


def _first_line(cause: BaseException) -> str:
    """Return the driver's own sentence, without the details below it, which may carry values."""
    return str(cause).partition("\n")[0] or type(cause).__name__
