"""The results of a task's steps: each is stored once, and the first result counts."""

from __future__ import annotations

from sqlalchemy import select, update

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.pool_tasks import Step, Stepped
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into
from mcpfleet.tasks.locking import has_let_go, lock_held
from mcpfleet.tasks.rules import BESIDE, check_size, weight
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import states, steps


class Steps:
    """Stores the results of steps."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings

    async def remember(self, pool: str, wanted: Step) -> Stepped:
        """Store a step's result, or return the one that was stored before.

        Raises:
            Failed: `too_large` where the result is, or the task's steps together are.
        """
        size = weight(wanted.result) + BESIDE
        check_size("a step's result", size, self._settings.task_step_limit, "MCPFLEET_TASK_STEP_LIMIT")
        async with self._store.write() as connection:
            row = await lock_held(connection, pool, wanted.id, wanted.fence)
            if row is None:
                return Stepped(lost=True, ended=await has_let_go(connection, pool, wanted.id, wanted.fence))
            kept = insert_into(steps, connection).values(
                task=wanted.id, key=wanted.key, name=wanted.name, result=wanted.result
            )
            if (await connection.execute(kept.on_conflict_do_nothing())).rowcount == 0:
                before = select(steps.c.result).where(steps.c.task == wanted.id, steps.c.key == wanted.key)
                return Stepped(result=await connection.scalar(before))
            check_memory(row.memory + size, self._settings)
            grown = {"memory": states.c.memory + size}
            await connection.execute(update(states).where(states.c.id == wanted.id).values(grown))
        return Stepped()


def check_memory(memory: int, settings: TasksSettings) -> None:
    """Bound a task's steps and answers together, which the store keeps and a claim carries.

    Raises:
        Failed: `too_large`.
    """
    if memory > settings.task_memory_limit:
        raise Failed(
            Fault.TOO_LARGE,
            f"the steps and answers of a task take {settings.task_memory_limit} bytes at most "
            "(MCPFLEET_TASK_MEMORY_LIMIT)",
        )
