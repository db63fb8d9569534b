"""Sweeps end what is over: leases, run limits, retentions, idempotency keys. An outage gives leases more time."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, case, delete, exists, func, select, update

from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now
from mcpfleet.tasks.attempts import Next
from mcpfleet.tasks.claims import Claims
from mcpfleet.tasks.locking import LOCKED_COLUMNS, attempts_of
from mcpfleet.tasks.rules import TaskChange, overdue
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import GOING_ON, WATCH, inputs, origins, reservations, states, steps, watch
from mcpfleet.tasks.task_end import TaskEnder

_AT_ONCE: Final = 200
"""Rows of one kind that one transaction takes at most; the next sweep takes more."""


class Sweeps:
    """Each method is one transaction. Replicas skip each other's rows, and never wait for one another."""

    def __init__(
        self, store: Store, settings: TasksSettings, claims: Claims, completer: TaskEnder, grace: LeaseGrace
    ) -> None:
        self._store = store
        self._settings = settings
        self._claims = claims
        self._completer = completer
        self._grace = grace

    async def lapse(self) -> list[TaskChange]:
        """Take tasks from holders that were silent for a lease while they could be heard."""
        silent = (
            select(*LOCKED_COLUMNS)
            .where(states.c.lease_until <= now(), self._grace.is_over())
            .order_by(states.c.lease_until)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True, of=states)
        )
        if not await self._has(select(states.c.id).where(states.c.lease_until <= now())):
            return []
        async with self._store.write() as connection:
            rows = (await connection.execute(silent)).all()
            changes = []
            for row in rows:
                tried = attempts_of(row)
                following: Next = tried.vanish(self._settings.task_backoff, self._settings.task_backoff_most)
                if row.status == Status.INPUT_REQUIRED:  # its handler did not run, so it did not harm its holder
                    following = tried.give_back()
                changes.append(await self._claims.put(connection, row, following, deprived=True))
        return changes

    async def end_overdue(self) -> list[TaskChange]:
        """End tasks that ran, or waited for a worker or for answers, for as long as they may."""
        over = (states.c.until <= now()) & states.c.status.in_(GOING_ON)
        if not await self._has(select(states.c.id).where(over)):
            return []
        late = (
            select(*LOCKED_COLUMNS)
            .where(over)
            .order_by(states.c.until)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        async with self._store.write() as connection:
            rows = (await connection.execute(late)).all()
            return [
                await self._completer.end(
                    connection,
                    row,
                    overdue(
                        is_waiting=row.status == Status.INPUT_REQUIRED,
                        was_claimed=row.fence > 0,
                        is_held=row.lease_until is not None,
                    ),
                )
                for row in rows
            ]

    async def forget(self) -> int:
        """Delete tasks whose retention is over, with all of their rows; returns how many."""
        over = (states.c.until <= now()) & states.c.status.not_in(GOING_ON)
        if not await self._has(select(states.c.id).where(over)):
            return 0
        expired = select(states.c.id).where(over).limit(_AT_ONCE).with_for_update(skip_locked=True)
        async with self._store.write() as connection:
            ids = list(await connection.scalars(expired))
            for table in (origins, inputs, steps, reservations):
                await connection.execute(delete(table).where(table.c.task.in_(ids)))
            await connection.execute(delete(states).where(states.c.id.in_(ids)))
        return len(ids)

    async def forget_reservations(self) -> int:
        """Delete expired idempotency keys; a task's key is deleted with the task."""
        alone = ~exists().where(states.c.id == reservations.c.task)
        over = (reservations.c.expires_at <= now()) & alone
        if not await self._has(select(reservations.c.key).where(over)):
            return 0
        expired = (
            select(reservations.c.key).where(over).limit(_AT_ONCE).with_for_update(skip_locked=True, of=reservations)
        )
        async with self._store.write() as connection:
            keys = list(await connection.scalars(expired))
            await connection.execute(delete(reservations).where(reservations.c.key.in_(keys)))
        return len(keys)

    async def count(self) -> dict[str, int]:
        """Count the tasks that wait for a worker, are held, and wait for their clients."""
        kinds = {
            "ready": states.c.ready_at.is_not(None),
            "held": states.c.lease_until.is_not(None),
            "waiting": states.c.status == Status.INPUT_REQUIRED,
        }
        async with self._store.read() as connection:
            return {
                kind: await connection.scalar(select(func.count()).select_from(states).where(which)) or 0
                for kind, which in kinds.items()
            }

    async def _has(self, wanted: object) -> bool:
        """Read before writing: mostly there is nothing to do."""
        async with self._store.read() as connection:
            return await connection.scalar(wanted.limit(1)) is not None  # type: ignore[attr-defined]


_FRESH: Final = 0.5
"""The part of the interval of sweeps for which no replica writes the row again."""


class LeaseGrace:
    """Gives every lease its whole time again after an outage.

    One row says when a replica last had both NATS and the store. While no replica could write it, no worker could renew
    a lease either. So the replica that writes it after a gap lets no lease lapse for one lease's time.
    """

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings

    async def open(self) -> None:
        """Insert the row, if it does not exist."""
        async with self._store.write() as connection:
            first = insert_into(watch, connection).values(
                id=WATCH, proven_at=now(), grace_until=now() + self._settings.task_lease
            )
            await connection.execute(first.on_conflict_do_nothing())

    async def prove(self) -> None:
        """Note that holders can be heard now; after a gap, give them all one lease's time."""
        grace = case(
            (watch.c.proven_at < now() - self._settings.tasks_away, now() + self._settings.task_lease),
            else_=watch.c.grace_until,
        )
        stale = watch.c.proven_at < now() - self._settings.tasks_sweep * _FRESH
        proving = update(watch).where(watch.c.id == WATCH, stale).values(proven_at=now(), grace_until=grace)
        async with self._store.write() as connection:
            await connection.execute(proving)

    def is_over(self) -> ColumnElement[bool]:
        """Whether a lease that ran out shows that its holder is silent."""
        return exists(
            select(watch.c.id).where(
                watch.c.id == WATCH,
                watch.c.grace_until <= now(),
                watch.c.proven_at >= now() - self._settings.tasks_away,
            )
        )
