"""Ending tasks: holders settle them in batches, sweeps end them, owners and operators cancel. An end is final."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.operator_tasks import StopTask, TaskStopped
from mcpfleet.contracts.pool_tasks import Settle, Settled
from mcpfleet.contracts.tasks import CancelTask, Status, TaskCancelled
from mcpfleet.process.batches import Batches
from mcpfleet.store.engine import Store
from mcpfleet.store.errors import OUTAGES
from mcpfleet.store.singles import SingleStatements
from mcpfleet.store.sql import now
from mcpfleet.tasks import statements
from mcpfleet.tasks.locking import LOCKED_COLUMNS, lock_all
from mcpfleet.tasks.reading import is_owned
from mcpfleet.tasks.rules import CANCELLED, ForcedEnd, TaskChange, check_size, weight
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.statements import HolderEnd, is_live
from mcpfleet.tasks.tables import AnyRow, states


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ends."""

    status: Status
    end: str | None = None
    message: str | None = None
    """None keeps the last status message."""
    progress: float | None = None
    """The progress in the message, where it has one."""
    failure: str = ""
    deprives: bool = False
    """Somebody other than its holder ends it: the holder's later writes must fail."""


@dataclass(frozen=True, slots=True)
class _Settling:
    pool: str
    wanted: Settle


def task_end_of(settled: Settle) -> TaskEnd:
    """Read how a holder's message ends a task."""
    return TaskEnd(settled.status, settled.end, settled.message, settled.progress, settled.failure or "")


class TaskEnder:
    """Ends tasks."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings
        self._batches: Batches[_Settling, TaskChange | None] = Batches(
            self._settle_all, settings.tasks_batch, spoils=OUTAGES
        )

    async def settle(self, pool: str, wanted: Settle) -> tuple[Settled, list[TaskChange]]:
        """End a task as its holder. A holder whose fence is old hears that it lost the task, and changes nothing.

        Raises:
            Failed: `contract` where the message does not end a task, `too_large` where its text is too large.
        """
        self.check(wanted)
        change = await self._batches.do(_Settling(pool, wanted))
        if change is None:
            return Settled(lost=not await self._is_settled(pool, wanted)), []
        return Settled(), [change]

    def check(self, wanted: Settle) -> None:
        """Refuse a message that cannot end a task."""
        needs_end = wanted.status in (Status.COMPLETED, Status.FAILED)
        if not wanted.status.is_end or needs_end != (wanted.end is not None):
            raise Failed(Fault.CONTRACT, "settle: status must be completed or failed with an end, or cancelled without")
        size = 0 if wanted.end is None else weight(wanted.end)
        check_size("a task's result", size, self._settings.task_end_limit, "MCPFLEET_TASK_END_LIMIT")

    async def end(self, connection: AsyncConnection, row: AnyRow, ends: ForcedEnd) -> TaskChange:
        """End a locked task without its holder."""
        ending = TaskEnd(ends.status, ends.error, _sentence(ends.why), failure=ends.failure, deprives=True)
        return await self.write(connection, row, ending)

    async def write(self, connection: AsyncConnection, row: AnyRow, ending: TaskEnd) -> TaskChange:
        """End a task that has not ended, in a transaction that has locked its row."""
        (change,) = await self._write(connection, [(row, ending)])
        return change

    async def _settle_all(self, batch: Sequence[_Settling]) -> list[TaskChange | None]:
        """End tasks of any pools; None for each that its holder has lost."""
        if self._store.singles is not None:
            changes = await self._settle_singly(self._store.singles, batch)
        else:
            changes = await self._settle_in_turn(batch)
        # Where a batch settles one task twice, the second then reads whether its fence has settled it.
        return [changes.pop((each.wanted.id, each.wanted.fence), None) for each in batch]

    async def _settle_singly(
        self, store: SingleStatements, batch: Sequence[_Settling]
    ) -> dict[tuple[str, int], TaskChange]:
        named = {(each.wanted.id, each.wanted.fence): each for each in batch}
        ends = [_holder_end(each) for each in named.values()]
        changes = {}
        for row in await statements.settle_singly(store, ends):
            wanted = named[row.id, row.fence].wanted
            changes[row.id, row.fence] = TaskChange(row.id, row.version, ended=(wanted.status, wanted.failure or ""))
        return changes

    async def _settle_in_turn(self, batch: Sequence[_Settling]) -> dict[tuple[str, int], TaskChange]:
        changes: dict[tuple[str, int], TaskChange] = {}
        async with self._store.write() as connection:
            for pool in sorted({each.pool for each in batch}):
                wanted = {(each.wanted.id, each.wanted.fence): each.wanted for each in batch if each.pool == pool}
                rows = await lock_all(connection, pool, sorted({task for task, _ in wanted}))
                mine = [row for row in rows if (row.id, row.fence) in wanted]
                ends = [(row, task_end_of(wanted[row.id, row.fence])) for row in mine]
                done = await self._write(connection, ends)
                changes |= {(row.id, row.fence): change for row, change in zip(mine, done, strict=True)}
        return changes

    async def _write(self, connection: AsyncConnection, ends: Iterable[tuple[AnyRow, TaskEnd]]) -> list[TaskChange]:
        ends = list(ends)
        if not ends:
            return []
        values = [
            {
                "_id": row.id,
                "_status": ending.status,
                "_end": ending.end,
                "_message": ending.message,
                "_progress": ending.progress,
                "_fence": row.fence + ending.deprives,
            }
            for row, ending in ends
        ]
        await statements.settle(connection, values)
        return [_change(row, ending) for row, ending in ends]

    async def _is_settled(self, pool: str, wanted: Settle) -> bool:
        """Whether this holder ended the task: anybody else who ends it raises the fence."""
        mine = select(states.c.id).where(
            states.c.id == wanted.id,
            states.c.pool == pool,
            states.c.fence == wanted.fence,
            states.c.status == wanted.status,
            states.c.lease_until.is_(None),
        )
        async with self._store.read() as connection:
            return await connection.scalar(mine) is not None


def _holder_end(each: _Settling) -> HolderEnd:
    wanted = each.wanted
    return HolderEnd(wanted.id, each.pool, wanted.fence, wanted.status, wanted.end, wanted.message, wanted.progress)


def _change(row: AnyRow, ending: TaskEnd) -> TaskChange:
    held = row.lease_until is not None and row.holder is not None
    return TaskChange(
        row.id,
        row.version + 1,
        notify=(row.pool, row.holder) if held and ending.deprives else None,
        ended=(ending.status, ending.failure),
    )


def _sentence(why: str) -> str | None:
    return f"The task has ended: {why}." if why else None


class TaskCanceller:
    """Takes cancellations: an owner's is stored, however the task ends, and an operator's ends it at once (K10)."""

    def __init__(self, store: Store, completer: TaskEnder) -> None:
        self._store = store
        self._completer = completer

    async def cancel(self, wanted: CancelTask) -> tuple[TaskCancelled, list[TaskChange]]:
        """Store an owner's cancellation: the task's holder is notified, and a task without a holder ends at once."""
        async with self._store.write() as connection:
            row = await _lock(connection, is_owned(wanted.id, wanted.binding))
            if row is None:
                return TaskCancelled(known=False), []
            if Status(row.status).is_end:
                return TaskCancelled(known=True, status=row.status), []
            if row.lease_until is None:
                change = await self._completer.end(connection, row, CANCELLED)
                return TaskCancelled(known=True, status=Status.CANCELLED), [change]
            if row.cancel_at is None:
                asked = update(states).where(states.c.id == wanted.id).values(cancel_at=now())
                await connection.execute(asked)
        return TaskCancelled(known=True, status=row.status), [TaskChange(row.id, notify=(row.pool, row.holder))]

    async def stop(self, wanted: StopTask) -> tuple[TaskStopped, list[TaskChange]]:
        """End a task for an operator. If a worker holds it, the worker's later writes fail."""
        ending = TaskEnd(Status.CANCELLED, message="An operator has ended the task.", failure="operator", deprives=True)
        async with self._store.write() as connection:
            row = await _lock(connection, (states.c.id == wanted.id) & is_live())
            if row is None:
                return TaskStopped(known=False), []
            if Status(row.status).is_end:
                return TaskStopped(known=True, status=row.status), []
            change = await self._completer.write(connection, row, ending)
        return TaskStopped(known=True, status=Status.CANCELLED), [change]


async def _lock(connection: AsyncConnection, which: Any) -> AnyRow | None:
    return (await connection.execute(select(*LOCKED_COLUMNS).where(which).with_for_update())).first()
