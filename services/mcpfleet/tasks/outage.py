"""For how long holders could have been heard: after an outage every lease gets its whole time again.

One row says when a replica last had both NATS and the store. While nobody could write it nobody could renew a lease
either, so whoever writes it again after a gap lets no lease lapse for one lease's time.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, case, exists, select, update

from mcpfleet.store.clock import now
from mcpfleet.store.engine import Store
from mcpfleet.store.insert import insert_into
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import WATCH, watch

_FRESH: float = 0.5
"""Of the interval of sweeps: a row that is younger need not be written again by another replica."""


class Outage:
    """The row, and what it allows."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings

    async def open(self) -> None:
        """Make the row, if there never was one."""
        async with self._store.write() as connection:
            first = insert_into(watch, connection).values(
                id=WATCH, proven_at=now(), grace_until=now() + self._settings.task_lease
            )
            await connection.execute(first.on_conflict_do_nothing())

    async def prove(self) -> None:
        """Say that holders can be heard now; after a gap, give them all one lease's time."""
        grace = case(
            (watch.c.proven_at < now() - self._settings.tasks_away, now() + self._settings.task_lease),
            else_=watch.c.grace_until,
        )
        stale = watch.c.proven_at < now() - self._settings.tasks_sweep * _FRESH
        proving = update(watch).where(watch.c.id == WATCH, stale).values(proven_at=now(), grace_until=grace)
        async with self._store.write() as connection:
            await connection.execute(proving)

    def is_over(self) -> ColumnElement[bool]:
        """Whether a lease that has run out means that its holder is silent."""
        return exists(
            select(watch.c.id).where(
                watch.c.id == WATCH,
                watch.c.grace_until <= now(),
                watch.c.proven_at >= now() - self._settings.tasks_away,
            )
        )
