"""Holding tasks: workers claim them under leases and fences, renew leases in batches, and release tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.pool_tasks import (
    Answered,
    Claimed,
    ClaimTasks,
    Extend,
    Extended,
    Release,
    Released,
    Remembered,
    TaskLease,
    TasksClaimed,
)
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import Moment, now, padded
from mcpfleet.tasks import statements
from mcpfleet.tasks.attempts import Next, Retry
from mcpfleet.tasks.locking import LOCKED_COLUMNS, attempts_of, has_let_go, lock_all, lock_held
from mcpfleet.tasks.rules import Candidate, ForcedEnd, TaskChange, is_news, pick
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import AnyRow, inputs, states, steps
from mcpfleet.tasks.task_end import TaskEnder, task_end_of

_Steps: TypeAlias = Mapping[str, Sequence[Remembered]]
_Answers: TypeAlias = Mapping[str, Sequence[Answered]]
_Taken: TypeAlias = Sequence[tuple[Any, str]]
"""Rows of tasks, each with its origin."""


class Claims:
    """Gives tasks to workers, and knows which worker holds each."""

    def __init__(self, store: Store, settings: TasksSettings, completer: TaskEnder) -> None:
        self._store = store
        self._settings = settings
        self._completer = completer
        self._budget = settings.task_origin_limit + settings.task_memory_limit

    # -- taking -------------------------------------------------------------------------------------------------------

    async def claim(self, pool: str, wanted: ClaimTasks) -> TasksClaimed:
        """Hand over up to as many tasks as are wanted, the longest waiting first."""
        taken, alone_waits = await self._take_singly(pool, wanted), False
        if taken is None:
            taken, alone_waits = await self._take_weighed(pool, wanted)
        remembered, answered = await self._memory([row.id for row, _ in taken if row.fence > 1])
        tasks = tuple(_claimed(row, origin, remembered, answered) for row, origin in taken)
        return TasksClaimed(tasks=tasks, lease=self._settings.task_lease, alone_waits=alone_waits)

    async def _take_singly(self, pool: str, wanted: ClaimTasks) -> _Taken | None:
        """Take tasks by one statement; none where `pick` must weigh them, or the database has no such way."""
        if self._store.singles is None:
            return None
        rows = await statements.claim_singly(
            self._store.singles, pool, wanted, budget=self._budget, lease=self._settings.task_lease
        )
        return None if rows is None else [(row, row.origin) for row in rows]

    async def _take_weighed(self, pool: str, wanted: ClaimTasks) -> tuple[_Taken, bool]:
        """Take the tasks that `pick` chooses; also whether one waits that must run alone."""
        async with self._store.write() as connection:
            found = await statements.candidates(connection, pool, wanted)
            candidates = [Candidate(row.id, row.size, row.vanished) for row in found]
            picked = pick(candidates, most=wanted.most, held=wanted.held, budget=self._budget)
            taken = await statements.take(connection, picked.ids, wanted, self._settings.task_lease)
        return taken, picked.alone_waits

    async def _memory(self, tasks: list[str]) -> tuple[_Steps, _Answers]:
        """The steps and answers of earlier attempts. Only a task's holder adds to them."""
        if not tasks:
            return {}, {}
        remembered: defaultdict[str, list[Remembered]] = defaultdict(list)
        wanted = select(steps.c.task, steps.c.key, steps.c.result).where(steps.c.task.in_(tasks))
        async with self._store.read() as connection:
            for row in await connection.execute(wanted):
                remembered[row.task].append(Remembered(key=row.key, result=row.result))
            return remembered, await read_answers(connection, tasks)

    # -- keeping ------------------------------------------------------------------------------------------------------

    async def extend(self, pool: str, wanted: Extend) -> tuple[Extended, list[TaskChange]]:
        """Renew a process's leases, and tell it which tasks it no longer holds; those stay unchanged."""
        changes: list[TaskChange] = []
        cancelled: list[str] = []
        answers: dict[str, tuple[Answered, ...]] = {}
        async with self._store.write() as connection:
            if wanted.unheard:
                changes += await self._give_back_unheard(connection, pool, wanted)
            rows = {row.id: row for row in await lock_all(connection, pool, [each.id for each in wanted.tasks])}
            kept = [each for each in wanted.tasks if each.id in rows and rows[each.id].fence == each.fence]
            ended, lost = await _gone(connection, pool, [each for each in wanted.tasks if each not in kept])
            cancelled = [each.id for each in kept if rows[each.id].cancel_at is not None]
            if kept:
                await self._renew(connection, kept)
                changes += await self._tell(connection, kept, rows)
            waiting = [each.id for each in kept if each.waits and rows[each.id].status == Status.WORKING]
            if waiting:
                answers = {task: tuple(each) for task, each in (await read_answers(connection, waiting)).items()}
        lease = self._settings.task_lease
        told = Extended(lease=lease, lost=lost, ended=ended, cancelled=tuple(cancelled), answers=answers)
        return told, changes

    async def _renew(self, connection: AsyncConnection, kept: Sequence[TaskLease]) -> None:
        mine = states.c.id.in_(padded([each.id for each in kept]))
        await connection.execute(update(states).where(mine).values(lease_until=now() + self._settings.task_lease))

    async def _tell(
        self, connection: AsyncConnection, kept: Sequence[TaskLease], rows: dict[str, AnyRow]
    ) -> list[TaskChange]:
        """Write new status messages."""
        news = [each for each in kept if _is_news(each, rows[each.id])]
        if not news:
            return []
        told = (
            update(states)
            .where(states.c.id == bindparam("_id"))
            .values(
                message=bindparam("_message"),
                progress=func.coalesce(bindparam("_progress", type_=Moment), states.c.progress),
                updated_at=now(),
                version=states.c.version + 1,
            )
        )
        said = [{"_id": each.id, "_message": each.message, "_progress": each.progress} for each in news]
        await connection.execute(told, said)
        return [TaskChange(each.id, rows[each.id].version + 1) for each in news]

    # -- releasing ----------------------------------------------------------------------------------------------------

    async def release(self, pool: str, wanted: Release) -> tuple[Released, list[TaskChange]]:
        """Take a task back from a worker that drains, or whose attempt failed."""
        async with self._store.write() as connection:
            row = await lock_held(connection, pool, wanted.id, wanted.fence)
            if row is None:
                # The question may be a repeat whose first answer was lost; then nobody holds the task.
                return Released(lost=not await has_let_go(connection, pool, wanted.id, wanted.fence)), []
            tried = attempts_of(row)
            following: Next | None = tried.give_back()
            if wanted.failed is not None:
                following = tried.fail(wanted.after, self._settings.task_backoff, self._settings.task_backoff_most)
            if following is None and wanted.failed is not None:
                change = await self._completer.write(connection, row, task_end_of(wanted.failed))
                return Released(status=wanted.failed.status), [change]
            assert following is not None
            change = await self.put(connection, row, following, deprived=False)
        return Released(status=following.status if isinstance(following, ForcedEnd) else Status(row.status)), [change]

    async def put(self, connection: AsyncConnection, row: AnyRow, following: Next, *, deprived: bool) -> TaskChange:
        """Write the decision about a task that its holder no longer holds.

        Args:
            connection: a transaction that has locked the row.
            row: as `LOCKED_COLUMNS` selects it.
            following: the decision.
            deprived: the holder did not release it, so its later writes must fail.
        """
        if isinstance(following, ForcedEnd):
            return await self._completer.end(connection, row, following)
        await self._retry(connection, row, following, deprived=deprived)
        ready = row.status == Status.WORKING
        return TaskChange(row.id, ready=(row.pool, row.definition) if ready else None)

    async def _retry(self, connection: AsyncConnection, row: AnyRow, following: Retry, *, deprived: bool) -> None:
        values: dict[str, Any] = {
            "lease_until": None,
            "attempts": following.attempts,
            "vanished": following.vanished,
            "fence": states.c.fence + int(deprived),
        }
        if row.status == Status.WORKING:  # else the answers make it ready
            values["ready_at"] = now() + following.after
        await connection.execute(update(states).where(states.c.id == row.id).values(values))

    async def _give_back_unheard(self, connection: AsyncConnection, pool: str, wanted: Extend) -> list[TaskChange]:
        """Take back tasks of claims whose answers a process did not hear."""
        unheard = (
            select(*LOCKED_COLUMNS)
            .where(
                states.c.lease_until.is_not(None),
                states.c.pool == pool,
                states.c.holder == wanted.process,
                states.c.claim.in_(wanted.unheard),
                states.c.id.not_in([each.id for each in wanted.tasks]),
            )
            .order_by(states.c.id)
            .with_for_update()
        )
        rows = (await connection.execute(unheard)).all()
        return [await self.put(connection, row, attempts_of(row).give_back(), deprived=True) for row in rows]


def _is_news(held: TaskLease, row: AnyRow) -> bool:
    return held.message is not None and held.message != row.message and is_news(held.progress, row.progress)


async def _gone(
    connection: AsyncConnection, pool: str, others: Sequence[TaskLease]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sort tasks that their named fence does not hold: those that their holder let go itself, and those it lost.

    Any other process that takes a task from its holder, or ends it, raises the fence.
    """
    if not others:
        return (), ()
    wanted = select(states.c.id, states.c.fence).where(
        states.c.id.in_(padded([each.id for each in others])), states.c.pool == pool, states.c.lease_until.is_(None)
    )
    left = {(row.id, row.fence) for row in await connection.execute(wanted)}
    ended = {each.id for each in others if (each.id, each.fence) in left}
    return tuple(sorted(ended)), tuple(sorted({each.id for each in others} - ended))


def _claimed(row: Any, origin: str, remembered: _Steps, answered: _Answers) -> Claimed:
    return Claimed(
        id=row.id,
        fence=row.fence,
        definition=row.definition,
        name=row.name,
        origin=origin,
        attempts=row.attempts,
        alone=Candidate(row.id, 0, row.vanished).is_alone,
        limit=max(0.0, row.limit),
        message=row.message,
        steps=tuple(remembered.get(row.id, ())),
        answers=tuple(answered.get(row.id, ())),
    )


async def read_answers(connection: AsyncConnection, tasks: list[str]) -> dict[str, list[Answered]]:
    """Read the answers that tasks have, in the order of their questions."""
    found: defaultdict[str, list[Answered]] = defaultdict(list)
    wanted = select(inputs.c.task, inputs.c.key, inputs.c.digest, inputs.c.answer).where(
        inputs.c.task.in_(tasks), inputs.c.answer.is_not(None)
    )
    for task, key, digest, answer in await connection.execute(wanted.order_by(inputs.c.task, inputs.c.ordinal)):
        found[task].append(Answered(key=key, digest=digest, answer=answer))
    return found
