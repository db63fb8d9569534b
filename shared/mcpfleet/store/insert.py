"""INSERT with ON CONFLICT, which SQLite and PostgreSQL write alike, and SQLAlchemy keeps apart."""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def insert_into(table: Table, connection: AsyncConnection) -> postgresql.Insert | sqlite.Insert:
    """Begin an INSERT in the connection's dialect."""
    return insert_for(table, connection.dialect.name)


def insert_for(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Begin an INSERT in a dialect, for a statement that is made once and run often."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
