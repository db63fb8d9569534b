"""Every error that the drivers can raise is one of the store's few kinds."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import ssl
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi

from mcpfleet.store.errors import (
    StoreBusy,
    StoreConflict,
    StoreError,
    StoreRefused,
    StoreUnreachable,
    is_refusal,
    translated,
)


def classes(module: ModuleType | type) -> Iterator[type[Exception]]:
    """The exception classes of a driver; its warnings are no errors that it raises."""
    for each in vars(module).values():
        if inspect.isclass(each) and issubclass(each, Exception) and not issubclass(each, UserWarning | Warning):
            yield each


ASYNCPG = [*classes(asyncpg.exceptions)]
SQLITE = [*classes(sqlite3), sqlite3.Warning]
ALCHEMY = [each for each in classes(exc) if issubclass(each, exc.SQLAlchemyError)]
ADAPTER = [*classes(AsyncAdapt_asyncpg_dbapi)]
SYSTEM = [
    OSError, ConnectionResetError, ConnectionRefusedError, BrokenPipeError, TimeoutError, EOFError, ssl.SSLError,
    ssl.SSLEOFError, asyncio.IncompleteReadError, asyncio.CancelledError,
]  # fmt: skip


def made(kind: type[BaseException]) -> BaseException:
    """An error of this class, without what its constructor may want."""
    try:
        return kind("no luck")
    except TypeError:
        error = kind.__new__(kind)
        BaseException.__init__(error, "no luck")
        return error


def raised(error: BaseException) -> StoreError:
    with pytest.raises(StoreError) as caught, translated("sqlite:///x"):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.rule("K23")
@pytest.mark.parametrize("kind", [*ASYNCPG, *SQLITE, *SYSTEM], ids=lambda kind: kind.__name__)
async def test_every_error_of_a_driver_is_one_of_the_stores_kinds(kind: type[BaseException]) -> None:
    assert isinstance(raised(made(kind)), StoreUnreachable | StoreBusy | StoreRefused)


@pytest.mark.rule("K23")
@pytest.mark.parametrize("kind", ALCHEMY, ids=lambda kind: kind.__name__)
async def test_every_error_of_sqlalchemy_is_one_of_the_stores_kinds(kind: Any) -> None:
    if issubclass(kind, exc.StatementError):
        for orig in (*ADAPTER, *SQLITE):
            inner: Any = made(orig)
            said = () if issubclass(kind, exc.DBAPIError) else ("no luck",)
            outer = kind(*said, "SELECT 1", None, inner)
            assert isinstance(raised(outer), StoreUnreachable | StoreBusy | StoreRefused)
    else:
        assert isinstance(raised(made(kind)), StoreUnreachable | StoreBusy | StoreRefused)


@pytest.mark.rule("K23")
def test_no_class_of_a_driver_is_forgotten() -> None:
    """The lists above are what the drivers export, by what they need to know of each."""
    assert len(ASYNCPG) > 200
    assert {asyncpg.InternalClientError, asyncpg.InterfaceError, asyncpg.PostgresError} <= set(ASYNCPG)
    assert {sqlite3.Error, sqlite3.OperationalError, sqlite3.Warning} <= set(SQLITE)
    assert {exc.PendingRollbackError, exc.ResourceClosedError, exc.TimeoutError} <= set(ALCHEMY)


@pytest.mark.rule("K23")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.InternalClientError("got result for unknown protocol state 3"), StoreUnreachable),
        (asyncpg.InterfaceError("connection is closed"), StoreUnreachable),
        (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), StoreUnreachable),
        (asyncpg.InvalidPasswordError("no"), StoreRefused),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), StoreUnreachable),
        (asyncpg.DiskFullError("no space left on device"), StoreUnreachable),
        (asyncpg.AdminShutdownError("terminating connection"), StoreUnreachable),
        (asyncpg.DeadlockDetectedError("deadlock"), StoreBusy),
        (asyncpg.SerializationError("could not serialize"), StoreBusy),
        (asyncpg.QueryCanceledError("statement timeout"), StoreBusy),
        (asyncpg.UndefinedTableError("no such table"), StoreRefused),
        (asyncpg.UniqueViolationError("twice"), StoreConflict),
        (asyncpg.ForeignKeyViolationError("still referred to"), StoreConflict),
        (asyncpg.DataError("invalid input for query argument"), StoreRefused),
        (exc.PendingRollbackError("rolled back"), StoreUnreachable),
        (exc.TimeoutError("QueuePool limit"), StoreBusy),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_each_kind_says_whether_it_passes_by_itself(error: Exception, kind: type[StoreError]) -> None:
    assert type(raised(error)) is kind


@pytest.mark.rule("K23")
async def test_a_cancellation_stays_one_and_a_mistake_of_ours_too() -> None:
    async def work() -> None:
        with translated("x"):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ZeroDivisionError), translated("x"):
        _ = 1 / 0


@pytest.mark.rule("K24")
@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (asyncpg.SerializationError("could not serialize"), True),
        (asyncpg.DeadlockDetectedError("deadlock"), True),
        (asyncpg.DiskFullError("no space left on device"), True),
        (asyncpg.UndefinedTableError("no such table"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (asyncpg.AdminShutdownError("terminating connection"), False),
        (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), False),
        (asyncpg.InternalClientError("got result for unknown protocol state 3"), False),
        (asyncpg.TransactionResolutionUnknownError("who knows"), False),
        (asyncpg.StatementCompletionUnknownError("who knows"), False),
        (ConnectionResetError(), False),
        (TimeoutError(), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_a_databases_own_word_makes_a_failed_commit_certain(error: Exception, refuses: bool) -> None:
    assert is_refusal(error) is refuses
