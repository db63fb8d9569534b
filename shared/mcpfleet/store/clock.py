"""The database's clock, read inside the statement: seconds since 1970 as a double, on both dialects.

A moment is stored as a double rather than as a timestamp so that one expression compares and subtracts on SQLite,
which has no type for time, as on PostgreSQL. A double holds today's seconds to a quarter of a microsecond.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

SQLITE_NOW: Final = "((julianday('now') - 2440587.5) * 86400.0)"
"""The moment at which a statement began, in SQLite's words."""
Moment = Double
"""The type of columns that hold a moment."""


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """The moment at which the statement began: the same wherever it stands in one statement."""

    type = Double()
    inherit_cache = True


@compiles(now, "postgresql")
def _postgresql(element: now, compiler: SQLCompiler, **_: Any) -> str:  # noqa: ARG001
    """Not `now()`, which is when the transaction began: a writer may have waited for its lock since."""
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) AS DOUBLE PRECISION)"


@compiles(now, "sqlite")
def _sqlite(element: now, compiler: SQLCompiler, **_: Any) -> str:  # noqa: ARG001
    """Not `unixepoch('subsec')`, which the SQLite of many a Python 3.11 does not know; good to a millisecond."""
    return SQLITE_NOW
