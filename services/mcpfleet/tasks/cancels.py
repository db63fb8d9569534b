"""Cancels: a wish of the owner that is kept whatever wins, or an operator's end at once (K10)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.operator_tasks import StopTask, TaskStopped
from mcpfleet.contracts.tasks import CancelTask, Status, TaskCancelled
from mcpfleet.store.clock import now
from mcpfleet.store.engine import Store
from mcpfleet.tasks.completion import Ending, Endings
from mcpfleet.tasks.locking import HELD
from mcpfleet.tasks.reading import is_live, is_owned
from mcpfleet.tasks.rules import CANCELLED, Change
from mcpfleet.tasks.tables import AnyRow, states


class Cancels:
    """Takes cancels."""

    def __init__(self, store: Store, endings: Endings) -> None:
        self._store = store
        self._endings = endings

    async def cancel(self, wanted: CancelTask) -> tuple[TaskCancelled, list[Change]]:
        """Keep the wish: who holds the task is told, and one that nobody holds ends at once."""
        async with self._store.write() as connection:
            row = await _lock(connection, is_owned(wanted.id, wanted.binding))
            if row is None:
                return TaskCancelled(known=False), []
            if Status(row.status).is_end:
                return TaskCancelled(known=True, status=row.status), []
            if row.lease_until is None:
                change = await self._endings.end(connection, row, CANCELLED)
                return TaskCancelled(known=True, status=Status.CANCELLED), [change]
            if row.cancel_at is None:
                asked = update(states).where(states.c.id == wanted.id).values(cancel_at=now())
                await connection.execute(asked)
        return TaskCancelled(known=True, status=row.status), [Change(row.id, nudge=(row.pool, row.holder))]

    async def stop(self, wanted: StopTask) -> tuple[TaskStopped, list[Change]]:
        """End a task, whoever holds it and whatever that one writes later."""
        ending = Ending(Status.CANCELLED, message="An operator has ended the task.", failure="operator", deprives=True)
        async with self._store.write() as connection:
            row = await _lock(connection, (states.c.id == wanted.id) & is_live())
            if row is None:
                return TaskStopped(known=False), []
            if Status(row.status).is_end:
                return TaskStopped(known=True, status=row.status), []
            change = await self._endings.write(connection, row, ending)
        return TaskStopped(known=True, status=Status.CANCELLED), [change]


async def _lock(connection: AsyncConnection, which: Any) -> AnyRow | None:
    return (await connection.execute(select(*HELD).where(which).with_for_update())).first()
