"""The stored revocations: each method is one transaction, and any number of replicas run them side by side."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Table, delete, insert, select, tuple_, update

from mcpfleet.authorization.tables import COUNTER, SCHEMA, counter, revocations, takings, windows
from mcpfleet.contracts.authorization import Revocation, Revoke, revoked_name
from mcpfleet.store.engine import Store
from mcpfleet.store.migrate import check_migrated
from mcpfleet.store.sql import now

PAGE: Final = 500
"""Revocations that one read, and one answer, has at most."""
_PRUNED: Final = 1_000
"""Rows of windows that one transaction deletes."""
_GRACE: Final = 60.0
"""Seconds for which a window's row outlives the window; no repeated question comes later."""


class DatedRevocation(NamedTuple):
    """A revocation, and the database's time at which it was made."""

    revocation: Revocation
    at: float


class RevocationPage(NamedTuple):
    """Revocations after a number, the oldest first."""

    number: int
    """The newest of all."""
    kept: tuple[DatedRevocation, ...]
    complete: bool


class RevocationRepository:
    """Authorization's tables. Every method raises `StoreError` where the database does not do its work."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self) -> None:
        """Refuse to serve on tables that are older than this release.

        Raises:
            ConfigurationError: they are; the sentence says what to run.
        """
        await check_migrated(self._store, SCHEMA)

    async def number(self) -> int:
        """The newest revocation's number; 0 before the first."""
        async with self._store.read() as connection:
            return int(await connection.scalar(select(counter.c.number).where(counter.c.id == COUNTER)) or 0)

    async def after(self, known: int) -> RevocationPage:
        """The revocations after a number."""
        async with self._store.read() as connection:
            # The number is read first: all revocations up to it are visible to the next statement.
            number = int(await connection.scalar(select(counter.c.number).where(counter.c.id == COUNTER)) or 0)
            newer = select(revocations.c.number, revocations.c.kind, revocations.c.key, revocations.c.at)
            newer = newer.where(revocations.c.number > known, revocations.c.number <= number)
            rows = (await connection.execute(newer.order_by(revocations.c.number).limit(PAGE + 1))).all()
        kept = tuple(
            DatedRevocation(Revocation(number=row.number, kind=row.kind, key=row.key), row.at) for row in rows[:PAGE]
        )
        return RevocationPage(number, kept, complete=len(rows) <= PAGE)

    async def revoke(self, wanted: Revoke) -> int:
        """Store a revocation, and return its number; asking twice with the same id stores it once."""
        kind, key = revoked_name(wanted.kind, wanted.name)
        async with self._store.write() as connection:
            # Locked until the commit: the next revocation gets its number when this one is visible.
            held = select(counter.c.number).where(counter.c.id == COUNTER).with_for_update()
            number = int(await connection.scalar(held) or 0)
            earlier = await connection.scalar(select(revocations.c.number).where(revocations.c.id == wanted.id))
            if earlier is not None:
                return int(earlier)
            await connection.execute(update(counter).where(counter.c.id == COUNTER).values(number=number + 1))
            await connection.execute(
                insert(revocations).values(number=number + 1, kind=kind, key=key, id=wanted.id, at=now())
            )
        return number + 1

    async def prune(self, kept: float) -> float:
        """Delete revocations that are older than any credential, and windows that ended long ago.

        Args:
            kept: seconds for which a revocation matters.

        Returns:
            The database's time before which no revocation matters.
        """
        async with self._store.write() as connection:
            horizon = float(await connection.scalar(select(now() - kept)) or 0.0)
            await connection.execute(delete(revocations).where(revocations.c.at < horizon))
        for table in (windows, takings):
            while await self._prune_some(table) == _PRUNED:
                pass
        return horizon

    async def _prune_some(self, table: Table) -> int:
        """Delete some rows of old windows: thousands at once would hold SQLite's only writer for too long."""
        is_over = table.c.ends_at < now() - _GRACE
        some = select(*table.primary_key).where(is_over).limit(_PRUNED)
        # Compared again: a row that was used meanwhile stays.
        over = delete(table).where(tuple_(*table.primary_key).in_(some), is_over)
        async with self._store.write() as connection:
            return (await connection.execute(over)).rowcount
