"""The settings of a service that keeps its state in SQL: the address of its database, and its bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import anyio
from pydantic import Field, SecretStr

from mcpfleet.process.settings import Seconds, Settings

Dialect = Literal["sqlite", "postgresql"]

_SQLITE: Final = "sqlite:///"
_POSTGRESQL: Final = re.compile(r"postgres(?:ql)?://(?:[^/?#@]*@)?(?P<hosts>[^/?#@]*)(?P<path>/?[^/?#@]*)(?:\?[^@]*)?")
"""One `@` at most: with a second one the end of the password is unclear, and nothing of the address is printed."""
_HOSTS: Final = re.compile(r"(?:,?(?:\[[^\]]*\]|[^:,\[\]]*)(?::\d+)?)*")
"""Hosts and numeric ports: a user and a password without their `@` do not look like this."""


@dataclass(frozen=True)
class StoreUrl:
    """The address of a database, which prints without user, password and options."""

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
    """Return hosts and database; neither if it is unclear which part is the password."""
    parts = _POSTGRESQL.fullmatch(text)
    if parts is None or not _HOSTS.fullmatch(parts["hosts"]):
        return "postgresql://…"
    return f"postgresql://{parts['hosts']}{parts['path']}"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The share of its database that one service may use; times in seconds."""

    connections: int = 10
    connect: float = 5.0
    statement: float = 10.0
    """For one statement, for a wait for a connection, and for the next statement of a transaction."""
    lock: float = 2.0
    """For a wait for a lock, unless `statement` is less. Askers wait 5 s, and ask again meanwhile. So the store itself
    tells them in time that it has done nothing (K30)."""

    @property
    def lock_wait(self) -> float:
        """Seconds of a wait for a lock."""
        return min(self.lock, self.statement)

    @property
    def transaction(self) -> float:
        """Seconds of a whole transaction, including making its connection."""
        return self.connect + 3 * self.statement


async def take_places(bounds: Bounds, *places: anyio.Semaphore) -> bool:
    """Take a place of each kind within the time of a statement, all or none; return False if they are not free in
    time."""
    taken: list[anyio.Semaphore] = []
    try:
        for place in places:
            place.acquire_nowait()
            taken.append(place)
    except anyio.WouldBlock:
        return await _wait_for(bounds, places, taken)
    return True


async def _wait_for(bounds: Bounds, places: tuple[anyio.Semaphore, ...], taken: list[anyio.Semaphore]) -> bool:
    try:
        with anyio.move_on_after(bounds.statement):
            for place in places[len(taken) :]:
                await place.acquire()
                taken.append(place)
    finally:
        if len(taken) < len(places):
            for place in taken:
                place.release()
    return len(taken) == len(places)


_DEFAULTS: Final = Bounds()


class StoreSettings(Settings):
    """The address of the store, and the share of it that one process may use."""

    store_url: SecretStr = Field(
        default=SecretStr(""),
        description="The database: postgresql://user:password@host/database, or sqlite:///path under `mcpfleet dev`.",
    )
    embedded: bool = Field(default=False, description="All processes run on one host; `mcpfleet dev` sets it.")
    store_connections: int = Field(
        default=_DEFAULTS.connections,
        ge=1,
        description="The most connections of a service to the database. The tasks service keeps up to 4 of them, but "
        "never all, for the statements that every task needs.",
    )
    store_connect_timeout: Seconds = Field(
        default=_DEFAULTS.connect, gt=0, description="The time that connecting to the database may take."
    )
    store_timeout: Seconds = Field(
        default=_DEFAULTS.statement,
        gt=0,
        description="The time for a statement, or for a wait for a connection. A wait for a lock takes 2 s at most.",
    )

    @property
    def store_bounds(self) -> Bounds:
        """The bounds for `open_store`."""
        return Bounds(
            connections=self.store_connections, connect=self.store_connect_timeout, statement=self.store_timeout
        )
