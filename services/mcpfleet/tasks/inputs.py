"""The questions of tasks, and their clients' answers (K9): a key names one question for the task's life."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.pool_tasks import Answered, Ask, QuestionsAsked
from mcpfleet.contracts.tasks import Status, Update, Updated
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now
from mcpfleet.tasks import rules
from mcpfleet.tasks.locking import LOCKED_COLUMNS, lock_task
from mcpfleet.tasks.reading import is_owned
from mcpfleet.tasks.rules import BESIDE, AskDecision, AskedQuestion, TaskChange, weight
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.steps import check_memory
from mcpfleet.tasks.tables import AnyRow, inputs, states


class Inputs:
    """Stores questions of tasks, and takes their clients' answers."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings

    async def ask(self, pool: str, wanted: Ask) -> tuple[QuestionsAsked, list[TaskChange]]:
        """Ask new questions; the task waits until all of its questions have answers.

        Raises:
            Failed: `refused` where the task has asked too many.
        """
        async with self._store.write() as connection:
            row = await lock_task(connection, pool, wanted.id, wanted.fence)
            # The question may be a repeat whose answer was lost; then the task waits already, and nobody holds it.
            if row is None or (row.lease_until is None and row.status != Status.INPUT_REQUIRED):
                return QuestionsAsked(lost=True, ended=row is not None), []
            known = await _known(connection, wanted.id)
            asking = rules.ask(wanted.questions, known)
            if asking.clash is not None:
                return QuestionsAsked(clash=asking.clash), []
            if len(known) + len(asking.new) > self._settings.task_questions:
                raise Failed(
                    Fault.REFUSED,
                    f"a task asks {self._settings.task_questions} questions at most (MCPFLEET_TASK_QUESTIONS)",
                )
            await self._insert(connection, wanted.id, asking, len(known))
            answered = tuple(
                Answered(key=each.key, digest=each.digest, answer=each.answer or "") for each in asking.answered
            )
            if not asking.is_waiting:
                return QuestionsAsked(answers=answered), []
            if not asking.new and row.status == Status.INPUT_REQUIRED and (wanted.keep or row.lease_until is None):
                return QuestionsAsked(waiting=True, answers=answered), []
            await self._wait(connection, wanted, asking, row)
        return QuestionsAsked(waiting=True, answers=answered), [TaskChange(wanted.id, row.version + 1)]

    async def _insert(self, connection: AsyncConnection, task: str, asking: AskDecision, ordinal: int) -> None:
        rows = [
            {"task": task, "key": each.key, "ordinal": ordinal + number, "digest": each.digest, "request": each.request}
            for number, each in enumerate(asking.new)
        ]
        if rows:
            await connection.execute(insert_into(inputs, connection), rows)

    async def _wait(self, connection: AsyncConnection, wanted: Ask, asking: AskDecision, row: AnyRow) -> None:
        """Let the task wait for its client; its run limit does not run meanwhile."""
        values: dict[str, Any] = {
            "status": Status.INPUT_REQUIRED,
            "questions": states.c.questions + len(asking.new),
            "version": states.c.version + 1,
            "updated_at": now(),
            "vanished": 0,
        }
        if row.status != Status.INPUT_REQUIRED:
            values |= {"run_left": states.c.until - now(), "until": now() + self._settings.task_input_wait}
        if not wanted.keep:
            values["lease_until"] = None
        if wanted.message is not None and rules.is_news(wanted.progress, row.progress):
            values["message"] = wanted.message
            values["progress"] = row.progress if wanted.progress is None else wanted.progress
        await connection.execute(update(states).where(states.c.id == wanted.id).values(values))

    async def update(self, wanted: Update) -> tuple[Updated, list[TaskChange]]:
        """Take the answers to outstanding questions; the task continues when none is left.

        Raises:
            Failed: `too_large` where the answers exceed what the task may store; then none is taken.
        """
        mine = select(*LOCKED_COLUMNS).where(is_owned(wanted.id, wanted.binding)).with_for_update()
        async with self._store.write() as connection:
            row = (await connection.execute(mine)).first()
            if row is None:
                return Updated(known=False), []
            if row.status != Status.INPUT_REQUIRED:
                return Updated(known=True), []
            outstanding = select(inputs.c.key).where(inputs.c.task == wanted.id, inputs.c.answer.is_(None))
            open_keys = list(await connection.scalars(outstanding.order_by(inputs.c.ordinal)))
            consumed = [key for key in open_keys if key in wanted.answers]
            if not consumed:
                return Updated(known=True), []
            size = sum(weight(wanted.answers[key]) + BESIDE for key in consumed)
            check_memory(row.memory + size, self._settings)
            answering = update(inputs).where(inputs.c.task == wanted.id, inputs.c.key == bindparam("_key"))
            values = [{"_key": key, "_answer": wanted.answers[key]} for key in consumed]
            await connection.execute(answering.values(answer=bindparam("_answer")), values)
            left = len(open_keys) - len(consumed)
            await self._go_on(connection, wanted.id, size, left, is_held=row.lease_until is not None)
        ready = (row.pool, row.definition) if left == 0 and row.lease_until is None else None
        notify = (row.pool, row.holder) if left == 0 and row.lease_until is not None else None
        change = TaskChange(wanted.id, row.version + 1, ready=ready, notify=notify)
        return Updated(known=True, consumed=tuple(consumed)), [change]

    async def _go_on(self, connection: AsyncConnection, task: str, size: int, left: int, *, is_held: bool) -> None:
        values = {
            "memory": states.c.memory + size,
            "questions": left,
            "version": states.c.version + 1,
            "updated_at": now(),
        }
        if left == 0:
            values |= {"status": Status.WORKING, "until": now() + states.c.run_left}
            if not is_held:
                values["ready_at"] = now()
        await connection.execute(update(states).where(states.c.id == task).values(values))


async def _known(connection: AsyncConnection, task: str) -> dict[str, AskedQuestion]:
    """Read the questions that a task has asked."""
    asked = select(inputs.c.key, inputs.c.digest, inputs.c.answer).where(inputs.c.task == task)
    return {row.key: AskedQuestion(*row) for row in await connection.execute(asked)}
