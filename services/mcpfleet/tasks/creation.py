"""Creating tasks: each is written in one transaction, and read back as its owner before its handle is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.pool_tasks import Defer, Deferred
from mcpfleet.contracts.tasks import Create, Created, KeyOutcome, NewTask, Once, TaskView
from mcpfleet.process.batches import Batches
from mcpfleet.store.engine import Store
from mcpfleet.store.errors import OUTAGES
from mcpfleet.tasks import statements
from mcpfleet.tasks.idempotency import reserve_for_task
from mcpfleet.tasks.reading import TaskReader
from mcpfleet.tasks.rules import TaskChange, check_size, weight
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import states

_Row: TypeAlias = tuple[Mapping[str, Any], str]
"""A task's columns, and its origin."""


@dataclass(slots=True)
class _Wanted:
    """A task in a batch."""

    row: _Row
    is_sent: bool = False
    """The store is asked to create it."""
    is_dropped: bool = False
    """Its caller left before that."""


def _sent(batch: Sequence[_Wanted]) -> list[_Row]:
    """The tasks of a batch whose callers still wait, marked as sent."""
    for wanted in batch:
        wanted.is_sent = not wanted.is_dropped
    return [wanted.row for wanted in batch if wanted.is_sent]


class TaskCreator:
    """Creates tasks for edges, which workers claim, and for workers, which hold them at once."""

    def __init__(self, store: Store, settings: TasksSettings, reader: TaskReader) -> None:
        self._store = store
        self._settings = settings
        self._reader = reader
        self._batches: Batches[_Wanted, None] = Batches(self._insert_all, settings.tasks_batch, spoils=OUTAGES)

    async def create(self, wanted: Create, tell: Callable[[TaskChange], None]) -> Created:
        """Create a task that waits for a worker, unless its idempotency key was used before.

        Args:
            wanted: the task.
            tell: is called after the commit: a worker may take the task while it is read back.

        Raises:
            Failed: `too_large`; `refused` where another task has the id.
        """
        task = wanted.task
        row = self._row(task)
        if wanted.once is None:
            await self._make(row)
        else:
            outcome, known = await self._insert_once(task, row, wanted.once)
            if known is not None:
                return Created(outcome=outcome, task=await self._reader.get(known, task.binding))
            if outcome is not KeyOutcome.NEW:
                return Created(outcome=outcome)
        tell(TaskChange(task.id, ready=(task.pool, task.definition)))
        return Created(outcome=KeyOutcome.NEW, task=await self._read_back(task, row))

    async def defer(self, pool: str, wanted: Defer) -> Deferred:
        """Create a task that its creator holds; raises as `create`."""
        task = wanted.task
        if task.pool != pool:
            raise Failed(Fault.REFUSED, "a worker may create tasks of its own pool only")
        row, lease = self._row(task), self._settings.task_lease
        async with self._store.write() as connection:
            if wanted.once is not None:
                outcome, known = await reserve_for_task(connection, wanted.once, task, self._settings)
                if known != task.id and outcome is not KeyOutcome.NEW:
                    return Deferred(outcome=outcome)
            await statements.make(connection, [row], is_held=True, holder=wanted.process, lease=lease)
        fence = await self._fence(task, wanted.process)
        return Deferred(outcome=KeyOutcome.NEW, fence=fence, lease=lease)

    def _row(self, task: NewTask) -> _Row:
        """Compose a task's row once: for a large origin, its digest and size cost more than the rest."""
        columns = _columns(task)
        limit = self._settings.task_origin_limit
        check_size("a task's description", columns["size"], limit, "MCPFLEET_TASK_ORIGIN_LIMIT")
        return columns, task.origin

    async def _insert_once(self, task: NewTask, row: _Row, once: Once) -> tuple[KeyOutcome, str | None]:
        """Create a task under an idempotency key; if the key was used, return its outcome and its task."""
        async with self._store.write() as connection:
            outcome, known = await reserve_for_task(connection, once, task, self._settings)
            if outcome is KeyOutcome.NEW or known == task.id:
                await self._insert(connection, [row])
                return KeyOutcome.NEW, None
        return outcome, known

    async def _make(self, row: _Row) -> None:
        """Create a task in a batch. A caller that leaves before the store was asked has certainly created none."""
        wanted = _Wanted(row)
        try:
            await self._batches.do(wanted)
        except asyncio.CancelledError as error:
            if not wanted.is_sent:
                wanted.is_dropped = error.is_undone = True  # type: ignore[attr-defined]  # who waits reads it
            raise

    async def _insert_all(self, batch: Sequence[_Wanted]) -> list[None]:
        if self._store.singles is not None:

            def late() -> list[_Row]:
                return _ordered(_sent(batch))

            await statements.make_singly(self._store.singles, late, self._settings.task_unclaimed)
        else:
            async with self._store.write() as connection:
                if rows := _sent(batch):
                    await self._insert(connection, rows)
        return [None] * len(batch)

    async def _insert(self, connection: AsyncConnection, rows: Sequence[_Row]) -> None:
        await statements.make(connection, _ordered(rows), is_held=False, unclaimed=self._settings.task_unclaimed)

    async def _read_back(self, task: NewTask, row: _Row) -> TaskView:
        """Read a new task as its owner would (K5): a handle that cannot be read must not be answered."""
        read = await self._reader.find(task.id, task.binding)
        if read is None or read.origin_digest != row[0]["origin_digest"]:
            raise _taken()
        return read.view

    async def _fence(self, task: NewTask, process: str) -> int:
        """The fence of a deferred task; a repeat finds the one of the first attempt."""
        held = select(states.c.fence).where(
            states.c.id == task.id,
            states.c.binding == task.binding.digest,
            states.c.holder == process,
            states.c.lease_until.is_not(None),
        )
        async with self._store.read() as connection:
            fence: int | None = await connection.scalar(held)
        if fence is None:
            raise _taken()
        return fence


def _taken() -> Failed:
    return Failed(Fault.REFUSED, "another task has this id")


def _ordered(rows: Sequence[_Row]) -> list[_Row]:
    """Sort rows by their ids, so that two batches never wait for each other."""
    return sorted(rows, key=lambda row: row[0]["id"])


def _columns(task: NewTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "binding": task.binding.digest,
        "endpoint": task.binding.endpoint,
        "pool": task.pool,
        "definition": task.definition,
        "name": task.name,
        "origin_digest": digest_of(task.origin.encode()),
        "run_left": task.run_limit,
        "retention": task.retention,
        "poll_ms": task.poll_ms,
        "most_attempts": task.attempts,
        "size": weight(task.origin),
        "message": task.message,
        "policy": task.policy,
    }
