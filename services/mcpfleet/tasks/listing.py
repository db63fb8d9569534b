"""The operator's list of tasks that have not ended; it shows nothing of their arguments and results."""

from __future__ import annotations

from sqlalchemy import ColumnElement, case, or_, select, true

from mcpfleet.contracts.operator_tasks import ListedTask, Listing, ListTasks, Why
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import now
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import GOING_ON, states


class TaskLister:
    """Lists tasks of all owners. On the bus, only operators may ask for it (K14)."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings

    async def list(self, wanted: ListTasks) -> Listing:
        """List the oldest tasks of one kind that have not ended."""
        which = states.c.status.in_(GOING_ON) & self._which(wanted.why)
        if wanted.pool is not None:
            which &= states.c.pool == wanted.pool
        is_held = states.c.lease_until.is_not(None)
        rows_wanted = (
            select(
                states.c.id,
                states.c.endpoint,
                states.c.pool,
                states.c.name,
                states.c.definition,
                states.c.status,
                case((is_held, states.c.holder)).label("holder"),
                states.c.attempts,
                (now() - states.c.created_at).label("age"),
                (now() - states.c.updated_at).label("quiet"),
                states.c.cancel_at,
            )
            .where(which)
            .order_by(states.c.created_at, states.c.id)
            .limit(wanted.most + 1)
        )
        async with self._store.read() as connection:
            rows = (await connection.execute(rows_wanted)).all()
        listed = [
            ListedTask(
                id=row.id,
                endpoint=row.endpoint,
                pool=row.pool,
                name=row.name,
                definition=row.definition,
                status=row.status,
                holder=row.holder,
                attempts=row.attempts,
                age=row.age,
                quiet=row.quiet,
                cancel_asked=row.cancel_at is not None,
            )
            for row in rows[: wanted.most]
        ]
        return Listing(tasks=tuple(listed), more=len(rows) > wanted.most)

    def _which(self, why: Why) -> ColumnElement[bool]:
        long_ago = now() - self._settings.task_stuck
        match why:
            case Why.STUCK:
                return or_(states.c.ready_at < long_ago, states.c.cancel_at < long_ago)
            case Why.WAITING:
                return states.c.status == Status.INPUT_REQUIRED
            case Why.RETRIED:
                return states.c.attempts > 0
            case Why.ALL:
                return true()
