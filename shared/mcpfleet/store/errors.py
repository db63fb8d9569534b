"""How work on the store ends without success, and the one place that reads the drivers' errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.exc import DBAPIError

_UNREACHABLE_STATES: Final = ("08", "25006", "53", "57P", "58")
"""SQLSTATE of a server that is away, full, starting, stopping, or only a standby now."""
_BUSY_STATES: Final = ("25P03", "25P04", "40", "55P03", "57014")
"""SQLSTATE of a transaction that waited or ran too long, or lost against another: it did nothing."""
_UNREACHABLE_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
_BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PRIMARY: Final = 0xFF
"""SQLite's extended result codes carry the primary one in their low byte."""


class StoreError(Exception):
    """Raised when the store could not do its work; the base of all that this package raises while a service runs."""


class StoreUnreachable(StoreError):
    """Raised when no connection to the database could be made, or it was lost.

    Lost while it committed, a transaction may have been written: writers are built so that doing it again is safe.
    """


class StoreBusy(StoreError):
    """Raised when a connection, a lock or a statement took longer than its bound; the transaction was rolled back."""


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn what the drivers raise into store errors; a mistake in a statement stays what it is.

    Args:
        where: the database, as it may be printed.
    """
    try:
        yield
    except TimeoutError as error:
        raise StoreBusy(f"the store at {where} did not answer in time (MCPFLEET_STORE_TIMEOUT)") from error
    except OSError as error:
        raise unreachable(where, error) from error
    except (DBAPIError, asyncpg.PostgresError) as error:
        cause, is_gone = error, False
        if isinstance(error, DBAPIError):
            cause, is_gone = error.orig or error, error.connection_invalidated
        if is_gone or is_away(cause):
            raise unreachable(where, error) from error
        if _is(cause, _BUSY_STATES, _BUSY_CODES):
            raise StoreBusy(f"the store at {where} is busy (MCPFLEET_STORE_TIMEOUT): {_first_line(cause)}") from error
        raise


def is_away(cause: BaseException) -> bool:
    """Whether a driver's error says that the database is away, or no place to write to."""
    return _is(cause, _UNREACHABLE_STATES, _UNREACHABLE_CODES)


def unreachable(where: str, cause: BaseException) -> StoreUnreachable:
    """Say which database is away, why, and which setting names it."""
    if isinstance(cause, DBAPIError):
        cause = cause.orig or cause
    return StoreUnreachable(f"the store at {where} cannot be reached (MCPFLEET_STORE_URL): {_first_line(cause)}")


def _is(cause: BaseException, states: tuple[str, ...], codes: frozenset[int]) -> bool:
    """Whether the driver's error carries one of PostgreSQL's states or of SQLite's codes."""
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & _PRIMARY in codes
    state: str | None = getattr(cause, "sqlstate", None)
    return state is not None and state.startswith(states)


def _first_line(cause: BaseException) -> str:
    """The driver's own sentence, without the details below it, which may carry values."""
    return str(cause).partition("\n")[0] or type(cause).__name__
