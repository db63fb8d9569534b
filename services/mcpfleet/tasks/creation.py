"""Making tasks: each with all that it needs in one transaction, and read back as its owner before anybody is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.errors import Failed
from mcpfleet.bus.fault import Fault
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.pool_tasks import Defer, Deferred
from mcpfleet.contracts.tasks import Create, Created, NewTask, Once, Outcome, Status, TaskView
from mcpfleet.store.clock import now
from mcpfleet.store.engine import Store
from mcpfleet.store.insert import insert_into
from mcpfleet.tasks.batches import Batches
from mcpfleet.tasks.reading import Reader
from mcpfleet.tasks.reservations import reserve_for_task
from mcpfleet.tasks.rules import Change, weight
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import origins, states

_FIRST_VERSION: Final = 1


class Maker:
    """Makes tasks for edges, which dispatches them, and for workers, which hold them at once."""

    def __init__(self, store: Store, settings: TasksSettings, reader: Reader) -> None:
        self._store = store
        self._settings = settings
        self._reader = reader
        self._batches: Batches[NewTask, None] = Batches(self._insert_all, settings.tasks_batch)

    async def create(self, wanted: Create) -> tuple[Created, Change | None]:
        """Make a task that waits for a worker; nothing is made where its key was used before.

        Raises:
            Failed: `too_large`; `refused` where the id is another task's.
        """
        task = wanted.task
        self._check(task)
        if wanted.once is None:
            await self._batches.do(task)
        else:
            outcome, known = await self._insert_once(task, wanted.once)
            if known is not None:
                return Created(outcome=outcome, task=await self._reader.get(known, task.binding)), None
            if outcome is not Outcome.NEW:
                return Created(outcome=outcome), None
        made = Change(task.id, ready=(task.pool, task.definition))
        return Created(outcome=Outcome.NEW, task=await self._read_back(task)), made

    async def defer(self, pool: str, wanted: Defer) -> Deferred:
        """Make a task that its maker holds; raises as `create`."""
        task = wanted.task
        if task.pool != pool:
            raise Failed(Fault.REFUSED, "a worker makes tasks of its own pool only")
        self._check(task)
        lease = self._settings.task_lease
        held = {"fence": 1, "holder": wanted.process, "ready_at": None, "lease_until": now() + lease}
        async with self._store.write() as connection:
            if wanted.once is not None:
                outcome, known = await reserve_for_task(connection, wanted.once, task, self._settings)
                if known != task.id and outcome is not Outcome.NEW:
                    return Deferred(outcome=outcome)
            await self._insert(connection, [task], held | {"until": now() + task.run_limit})
        fence = await self._fence(task, wanted.process)
        return Deferred(outcome=Outcome.NEW, fence=fence, lease=lease)

    def _check(self, task: NewTask) -> None:
        size = weight(task.origin)
        if size > self._settings.task_origin_limit:
            raise Failed(
                Fault.TOO_LARGE,
                f"a task's description of {size} bytes is over the limit of {self._settings.task_origin_limit} "
                "(MCPFLEET_TASK_ORIGIN_LIMIT)",
            )

    async def _insert_once(self, task: NewTask, once: Once) -> tuple[Outcome, str | None]:
        """Make a task under an idempotency key, unless it has been used: then say how, and for which task."""
        async with self._store.write() as connection:
            outcome, known = await reserve_for_task(connection, once, task, self._settings)
            if outcome is Outcome.NEW or known == task.id:
                await self._insert(connection, [task])
                return Outcome.NEW, None
        return outcome, known

    async def _insert_all(self, tasks: Sequence[NewTask]) -> list[None]:
        async with self._store.write() as connection:
            await self._insert(connection, tasks)
        return [None] * len(tasks)

    async def _insert(self, connection: AsyncConnection, tasks: Sequence[NewTask], held: Any = None) -> None:
        """Write the rows, the same ones at a repeat; what an id stood for before stays."""
        common = {
            "status": Status.WORKING,
            "version": _FIRST_VERSION,
            "fence": 0,
            "created_at": now(),
            "updated_at": now(),
            "until": now() + self._settings.task_unclaimed,
            "attempts": 0,
            "vanished": 0,
            "memory": 0,
            "questions": 0,
            "ready_at": now(),
        }
        values = {**common, **(held or {}), **{name: bindparam(f"_{name}") for name in _OWN}}
        # In the order of their ids, so that two batches never wait for each other.
        ordered = sorted(tasks, key=lambda task: task.id)
        rows = [_row(task) for task in ordered]
        await connection.execute(insert_into(states, connection).values(values).on_conflict_do_nothing(), rows)
        texts = [{"task": task.id, "origin": task.origin} for task in ordered]
        await connection.execute(insert_into(origins, connection).on_conflict_do_nothing(), texts)

    async def _read_back(self, task: NewTask) -> TaskView:
        """Read what was made as its owner would (K5): a handle that cannot be read must not leave."""
        read = await self._reader.find(task.id, task.binding)
        if read is None or read.origin_digest != digest_of(task.origin.encode()):
            raise _taken()
        return read.view

    async def _fence(self, task: NewTask, process: str) -> int:
        """The fence of a task that was deferred, which a repeat finds as the first left it."""
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
    return Failed(Fault.REFUSED, "the task's id is taken")


_OWN: Final = (
    "id",
    "binding",
    "endpoint",
    "pool",
    "definition",
    "name",
    "origin_digest",
    "run_left",
    "retention",
    "poll_ms",
    "most_attempts",
    "size",
    "message",
    "policy",
)


def _row(task: NewTask) -> dict[str, Any]:
    return {
        "_id": task.id,
        "_binding": task.binding.digest,
        "_endpoint": task.binding.endpoint,
        "_pool": task.pool,
        "_definition": task.definition,
        "_name": task.name,
        "_origin_digest": digest_of(task.origin.encode()),
        "_run_left": task.run_limit,
        "_retention": task.retention,
        "_poll_ms": task.poll_ms,
        "_most_attempts": task.attempts,
        "_size": weight(task.origin),
        "_message": task.message,
        "_policy": task.policy,
    }
