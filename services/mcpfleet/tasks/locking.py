"""Locking the rows of held tasks, for decisions about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.store.sql import padded
from mcpfleet.tasks.attempts import Attempts
from mcpfleet.tasks.tables import AnyRow, states

LOCKED_COLUMNS: Final = (
    states.c.id,
    states.c.pool,
    states.c.definition,
    states.c.status,
    states.c.version,
    states.c.fence,
    states.c.attempts,
    states.c.most_attempts,
    states.c.vanished,
    states.c.cancel_at,
    states.c.message,
    states.c.progress,
    states.c.holder,
    states.c.lease_until,
    states.c.memory,
    states.c.questions,
)
"""The columns that decisions about a held task need."""

_HELD: Final = (
    select(*LOCKED_COLUMNS)
    .where(
        states.c.id.in_(bindparam("_ids", expanding=True)),
        states.c.pool == bindparam("_pool"),
        states.c.lease_until.is_not(None),
    )
    .order_by(states.c.id)
    .with_for_update()
)


def attempts_of(row: AnyRow) -> Attempts:
    """Read the attempts that count against a task."""
    return Attempts(row.attempts, row.most_attempts, row.vanished, is_cancelled=row.cancel_at is not None)


async def lock_held(connection: AsyncConnection, pool: str, task: str, fence: int) -> AnyRow | None:
    """Lock a task that is held under this fence; None where it is not, and the writer has lost it."""
    rows = await lock_all(connection, pool, [task])
    return rows[0] if rows and rows[0].fence == fence else None


async def lock_all(connection: AsyncConnection, pool: str, tasks: Sequence[str]) -> Sequence[AnyRow]:
    """Lock those of these tasks that are held, in the order of their ids: two writers never wait for each other."""
    if not tasks:
        return []
    return (await connection.execute(_HELD, {"_ids": padded(tasks), "_pool": pool})).all()


async def has_let_go(connection: AsyncConnection, pool: str, task: str, fence: int) -> bool:
    """Whether a free task was released by its last holder: anybody else who takes it away raises the fence."""
    left = select(states.c.id).where(
        states.c.id == task, states.c.pool == pool, states.c.fence == fence, states.c.lease_until.is_(None)
    )
    return await connection.scalar(left) is not None


async def lock_task(connection: AsyncConnection, pool: str, task: str, fence: int) -> AnyRow | None:
    """Lock a task that has this fence, whether or not it is held."""
    wanted = select(*LOCKED_COLUMNS).where(states.c.id == task, states.c.pool == pool, states.c.fence == fence)
    return (await connection.execute(wanted.with_for_update())).first()
