"""MCPFLEET_STORE_URL: which database it names, and how it may be printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Dialect = Literal["sqlite", "postgresql"]

_SQLITE: Final = "sqlite:///"
_POSTGRESQL: Final = re.compile(r"postgres(?:ql)?://(?:[^/?#@]*@)?(?P<hosts>[^/?#@]*)(?P<path>/?[^/?#@]*)(?:\?[^@]*)?")
"""One `@` at most: with a second one it is open where the password ends, and nothing of the address is printed."""
_HOSTS: Final = re.compile(r"(?:,?(?:\[[^\]]*\]|[^:,\[\]]*)(?::\d+)?)*")
"""Hosts and numeric ports: a user and a password that lack their `@` do not look like this."""


@dataclass(frozen=True)
class StoreUrl:
    """A database's address, which prints without user, password and options."""

    dialect: Dialect
    where: str
    """The address as it may be printed."""
    secret: str
    """SQLite's path, or the whole PostgreSQL address as asyncpg reads it."""

    def __repr__(self) -> str:
        return f"StoreUrl({self.where})"


def read_url(text: str) -> StoreUrl:
    """Read `sqlite:///relative`, `sqlite:////absolute` or `postgresql://user:password@host/database?options`.

    Raises:
        ValueError: it is none of these; the sentence never quotes the address.
    """
    if text.startswith(("postgresql://", "postgres://")):
        return StoreUrl("postgresql", _printable(text), text)
    path = text.removeprefix(_SQLITE)
    if path != text and path not in {"", ":memory:"} and "?" not in path:
        return StoreUrl("sqlite", text, path)
    if not text:
        raise ValueError("MCPFLEET_STORE_URL: must be set, for example to postgresql://user:password@host/database")
    raise ValueError("MCPFLEET_STORE_URL: must be postgresql://user:password@host/database or sqlite:///path")


def _printable(text: str) -> str:
    """Keep hosts and database; neither where it is open which part is the password."""
    parts = _POSTGRESQL.fullmatch(text)
    if parts is None or not _HOSTS.fullmatch(parts["hosts"]):
        return "postgresql://…"
    return f"postgresql://{parts['hosts']}{parts['path']}"
