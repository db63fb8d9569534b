"""SQL that SQLite and PostgreSQL share: the clock, INSERT with ON CONFLICT, and lists for IN.

A moment is stored as a double and not as a timestamp. So one expression compares and subtracts on PostgreSQL and on
SQLite, which has no type for time. A double holds today's seconds to a quarter of a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Double, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

SQLITE_NOW: Final = "((julianday('now') - 2440587.5) * 86400.0)"
"""The moment at which a statement began, in SQLite's words."""
Moment = Double
"""The type of columns that hold a moment."""


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """The moment at which the statement began: the same everywhere in one statement."""

    type = Double()
    inherit_cache = True


@compiles(now, "postgresql")
def _postgresql(element: now, compiler: SQLCompiler, **_: Any) -> str:  # noqa: ARG001
    """Not `now()`, the beginning of the transaction: a writer may have waited for its lock since."""
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) AS DOUBLE PRECISION)"


@compiles(now, "sqlite")
def _sqlite(element: now, compiler: SQLCompiler, **_: Any) -> str:  # noqa: ARG001
    """Not `unixepoch('subsec')`, which the SQLite of many a Python 3.11 lacks; good to a millisecond."""
    return SQLITE_NOW


def insert_into(table: Table, connection: AsyncConnection) -> postgresql.Insert | sqlite.Insert:
    """Begin an INSERT in the connection's dialect."""
    return insert_for(table, connection.dialect.name)


def insert_for(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Begin an INSERT in a dialect, for a statement that is made once and run often."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


Value = TypeVar("Value")


def padded(values: Sequence[Value]) -> list[Value]:
    """Repeat the last value until the length is a power of two: an IN takes it as the same list."""
    length = 1 << max(0, len(values) - 1).bit_length()
    return list(values) + list(values[-1:]) * (length - len(values))
