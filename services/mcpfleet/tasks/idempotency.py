"""Idempotency keys: the first call under a key, its outcome, and the answers to its repeats (D9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import case, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.pool_tasks import Remember
from mcpfleet.contracts.tasks import KeyOutcome, NewTask, Once, Reserve, Reserved
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.statements import is_live
from mcpfleet.tasks.tables import AnyRow, reservations, states

_FIRST_FENCE: Final = 1


class KeyState(StrEnum):
    """The state of the first call under a key."""

    RUNNING = "running"
    DONE = "done"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A stored key."""

    arguments: str
    state: KeyState
    fence: int
    holder: str
    is_late: bool
    """The deadline of the call that reserved it has passed."""
    task: str | None = None


def judge(record: KeyRecord, *, arguments: str, holder: str = "", again_is_safe: bool = False) -> KeyOutcome:
    """Decide what a call under a used key may do. NEW means that it runs, as the first call or in its place."""
    if record.arguments != arguments:
        return KeyOutcome.MISMATCH
    if record.state is KeyState.DONE:
        return KeyOutcome.REPEAT
    if record.state is KeyState.UNCERTAIN or record.is_late:
        return KeyOutcome.NEW if again_is_safe else KeyOutcome.UNCERTAIN
    return KeyOutcome.NEW if record.holder == holder else KeyOutcome.RUNNING


class IdempotencyKeys:
    """The idempotency keys of inline calls. A task reserves its key in the transaction that creates it."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._settings = settings

    async def reserve(self, wanted: Reserve) -> Reserved:
        """Reserve a key, or return the outcome of its first call."""
        if wanted.ended is not None:
            return await self._end(wanted)
        once = wanted.once
        told = await self._repeat(wanted)
        if told is not None:
            return told
        async with self._store.write() as connection:
            record = await _record(connection, once.key)
            if record is None:
                is_first = await _take(connection, wanted, self._settings.idempotency_kept)
                return (
                    Reserved(outcome=KeyOutcome.NEW, fence=_FIRST_FENCE)
                    if is_first
                    else Reserved(outcome=KeyOutcome.RUNNING)
                )
            outcome = judge(record, arguments=once.arguments, holder=wanted.holder, again_is_safe=wanted.again_is_safe)
            if outcome is KeyOutcome.NEW:
                return await self._take_over(connection, wanted, record)
            if outcome is KeyOutcome.UNCERTAIN and record.state is KeyState.RUNNING:
                await connection.execute(_of(once.key).values(state=KeyState.UNCERTAIN))
            if outcome is not KeyOutcome.REPEAT:
                return Reserved(outcome=outcome)
            return await _first_result(connection, once.key, record)

    async def _repeat(self, wanted: Reserve) -> Reserved | None:
        """Answer a repeat with a read only: a hundred that wait must not queue for SQLite's only writer."""
        async with self._store.read() as connection:
            record = await _record(connection, wanted.once.key, lock=False)
            if record is None:
                return None
            outcome = judge(record, arguments=wanted.once.arguments, holder=wanted.holder)
            if outcome is KeyOutcome.RUNNING:
                return Reserved(outcome=outcome)
            return await _first_result(connection, wanted.once.key, record) if outcome is KeyOutcome.REPEAT else None

    async def _take_over(self, connection: AsyncConnection, wanted: Reserve, record: KeyRecord) -> Reserved:
        """Reserve the key for a second run after an uncertain call, or answer the holder's own repeat."""
        if record.holder == wanted.holder and record.state is KeyState.RUNNING:
            return Reserved(outcome=KeyOutcome.NEW, fence=record.fence)
        fence = record.fence + 1
        await connection.execute(
            _of(wanted.once.key).values(
                state=KeyState.RUNNING,
                fence=fence,
                holder=wanted.holder,
                pool=wanted.pool,
                lease_until=now() + wanted.lasts,
                expires_at=now() + wanted.lasts + self._settings.idempotency_kept,
            )
        )
        return Reserved(outcome=KeyOutcome.NEW, fence=fence)

    async def _end(self, wanted: Reserve) -> Reserved:
        """Store how a call without a result ended. Only its holder may, while the call counts as running."""
        mine = (
            (reservations.c.key == wanted.once.key)
            & (reservations.c.holder == wanted.holder)
            & (reservations.c.state == KeyState.RUNNING)
        )
        async with self._store.write() as connection:
            if wanted.ended == "not_run":
                # A call that ran before under the key stays uncertain: only a first call leaves no trace.
                await connection.execute(delete(reservations).where(mine, reservations.c.fence == _FIRST_FENCE))
            await connection.execute(update(reservations).where(mine).values(state=KeyState.UNCERTAIN))
        return Reserved(outcome=KeyOutcome.UNCERTAIN if wanted.ended == "uncertain" else KeyOutcome.NEW)

    async def remember(self, pool: str, kept: Remember) -> bool:
        """Store the first result of a key; false where the reservation is over, or belongs to another call."""
        mine = (reservations.c.key == kept.key) & (reservations.c.fence == kept.fence) & (reservations.c.pool == pool)
        running = (reservations.c.state == KeyState.RUNNING) & (reservations.c.lease_until > now())
        done = update(reservations).where(mine, running)
        expires = now() + self._settings.idempotency_kept
        async with self._store.write() as connection:
            values: dict[str, Any] = {"state": KeyState.DONE, "result": kept.result, "expires_at": expires}
            if (await connection.execute(done.values(values))).rowcount == 1:
                return True
            # The question may be a repeat whose answer was lost: a fence stores a result once.
            kept_before = select(reservations.c.key).where(
                mine, reservations.c.state == KeyState.DONE, reservations.c.task.is_(None)
            )
            return await connection.scalar(kept_before) is not None


async def reserve_for_task(
    connection: AsyncConnection, once: Once, task: NewTask, settings: TasksSettings
) -> tuple[KeyOutcome, str | None]:
    """Reserve a key for a task, in the transaction that creates it; if the key was used, return for what.

    A call that holds the key, by its fence, passes it on to its task.
    """
    made = {
        "state": KeyState.DONE,
        "task": task.id,
        "pool": task.pool,
        "holder": "",
        "lease_until": now(),
        "expires_at": now() + settings.idempotency_kept,
    }
    first = insert_into(reservations, connection).values(
        key=once.key, arguments=once.arguments, fence=_FIRST_FENCE, **made
    )
    if (await connection.execute(first.on_conflict_do_nothing())).rowcount == 1:
        return KeyOutcome.NEW, None
    record = await _record(connection, once.key)
    if record is None:  # it was deleted just now
        return KeyOutcome.RUNNING, None
    outcome = judge(record, arguments=once.arguments)
    if outcome is KeyOutcome.RUNNING and record.fence == once.fence:
        await connection.execute(_of(once.key).values(made))
        return KeyOutcome.NEW, None
    if outcome is KeyOutcome.REPEAT and record.task not in (None, task.id):
        alive = await connection.scalar(select(states.c.id).where(states.c.id == record.task, is_live()))
        if alive is None:
            await connection.execute(_of(once.key).values(made))
            return KeyOutcome.NEW, None
    return outcome, record.task if outcome is KeyOutcome.REPEAT else None


def _of(key: str) -> Any:
    return update(reservations).where(reservations.c.key == key)


async def _take(connection: AsyncConnection, wanted: Reserve, kept: float) -> bool:
    """Insert the first reservation of a key; false where another call was faster."""
    first = insert_into(reservations, connection).values(
        key=wanted.once.key,
        arguments=wanted.once.arguments,
        pool=wanted.pool,
        state=KeyState.RUNNING,
        fence=_FIRST_FENCE,
        holder=wanted.holder,
        lease_until=now() + wanted.lasts,
        expires_at=now() + wanted.lasts + kept,
    )
    return bool((await connection.execute(first.on_conflict_do_nothing())).rowcount == 1)


async def _first_result(connection: AsyncConnection, key: str, record: KeyRecord) -> Reserved:
    """Return the outcome of the first call under a key."""
    result = None
    if record.task is None:
        result = await connection.scalar(select(reservations.c.result).where(reservations.c.key == key))
    return Reserved(outcome=KeyOutcome.REPEAT, fence=record.fence, result=result, task=record.task)


async def _record(connection: AsyncConnection, key: str, *, lock: bool = True) -> KeyRecord | None:
    """Read a key's row, and lock it where it will be written."""
    is_late = case((reservations.c.lease_until <= now(), 1), else_=0)
    wanted = select(
        reservations.c.arguments,
        reservations.c.state,
        reservations.c.fence,
        reservations.c.holder,
        is_late.label("is_late"),
        reservations.c.task,
    ).where(reservations.c.key == key)
    row: AnyRow | None = (await connection.execute(wanted.with_for_update() if lock else wanted)).first()
    if row is None:
        return None
    return KeyRecord(row.arguments, KeyState(row.state), row.fence, row.holder, bool(row.is_late), row.task)
