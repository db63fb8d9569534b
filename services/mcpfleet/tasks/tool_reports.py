"""Tool reports, by which tasks survive a rollout: a task whose version has no worker moves to another version (K21).

Workers report the tools that they have. A version that no worker reported for `task_gone` is gone. Its waiting tasks
move to the tool's other version, with their steps and answers. A tool that is gone with all versions ends its
tasks with a reason. Only a worker that was heard without a gap for the same time decides so. After an outage, every
version has its time to be reported again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, and_, case, delete, exists, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.pool_tasks import Serve, Served
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now, padded
from mcpfleet.tasks.locking import LOCKED_COLUMNS
from mcpfleet.tasks.rules import LACKS_TOOL, ForcedEnd, TaskChange
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import served, states
from mcpfleet.tasks.task_end import TaskEnder

_AT_ONCE: Final = 200
"""Tasks that one report, or one sweep, takes at most."""


class ToolReports:
    """Knows which versions of tools have workers."""

    def __init__(self, store: Store, settings: TasksSettings, completer: TaskEnder) -> None:
        self._store = store
        self._settings = settings
        self._completer = completer

    async def serve(self, pool: str, wanted: Serve) -> tuple[Served, list[TaskChange]]:
        """Store a worker's report, and move tasks to its versions whose own versions are gone."""
        if not wanted.tools:
            return Served(), []
        async with self._store.write() as connection:
            await self._note(connection, pool, wanted.tools)
            settled = await self._heard_long(connection, pool, wanted.tools)
            changes = await self._adopt(connection, pool, settled) if settled else []
        return Served(adopted=len(changes)), changes

    async def _note(self, connection: AsyncConnection, pool: str, tools: Mapping[str, str]) -> None:
        rows = [
            {"pool": pool, "definition": definition, "name": name}
            for definition, name in sorted((definition, name) for name, definition in tools.items())
        ]
        first = insert_into(served, connection).values(since=now(), seen_at=now()).on_conflict_do_nothing()
        await connection.execute(first, rows)
        mine = (served.c.pool == pool) & served.c.definition.in_([row["definition"] for row in rows])
        since = case((self._is_seen(self._settings.task_gone), served.c.since), else_=now())
        await connection.execute(update(served).where(mine).values(since=since, seen_at=now()))

    async def _heard_long(self, connection: AsyncConnection, pool: str, tools: Mapping[str, str]) -> dict[str, str]:
        """Those of a worker's tools that were reported for so long that any other version would have been, too."""
        long_ago = now() - self._settings.task_gone
        mine = (served.c.pool == pool) & served.c.definition.in_(list(tools.values())) & (served.c.since <= long_ago)
        return {row.name: row.definition for row in await connection.execute(select(served).where(mine))}

    async def _adopt(self, connection: AsyncConnection, pool: str, tools: Mapping[str, str]) -> list[TaskChange]:
        """Move tasks to these versions whose own versions are gone."""
        gone = ~exists().where(
            served.c.pool == states.c.pool,
            served.c.definition == states.c.definition,
            self._is_seen(self._settings.task_gone),
        )
        left = (
            select(states.c.id, states.c.name)
            .where(
                states.c.pool == pool,
                states.c.ready_at.is_not(None),
                states.c.name.in_(padded(list(tools))),
                states.c.definition.not_in(padded(list(tools.values()))),
                gone,
            )
            .order_by(states.c.id)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True, of=states)
        )
        found = (await connection.execute(left)).all()
        for row in found:
            other = update(states).where(states.c.id == row.id).values(definition=tools[row.name])
            await connection.execute(other)
        return [TaskChange(row.id, ready=(pool, tools[row.name])) for row in found]

    async def end_removed(self) -> list[TaskChange]:
        """End tasks that wait for a tool which their pool has not had for `task_removed`, while the pool is heard."""
        removed = self._settings.task_removed
        pool_is_heard = exists().where(
            served.c.pool == states.c.pool,
            self._is_seen(self._settings.task_gone),
            served.c.since <= now() - removed,
        )
        tool_is_had = exists().where(
            served.c.pool == states.c.pool,
            served.c.name == states.c.name,
            self._is_seen(removed),
        )
        which = and_(states.c.ready_at <= now() - removed, pool_is_heard, ~tool_is_had)
        async with self._store.read() as connection:
            if await connection.scalar(select(states.c.id).where(which).limit(1)) is None:
                return []
        over = select(*LOCKED_COLUMNS).where(which).order_by(states.c.id).limit(_AT_ONCE)
        ends = ForcedEnd(Status.FAILED, "no_worker", LACKS_TOOL)
        async with self._store.write() as connection:
            rows = (await connection.execute(over.with_for_update(skip_locked=True, of=states))).all()
            return [await self._completer.end(connection, row, ends) for row in rows]

    async def forget(self) -> None:
        """Delete versions that were silent for so long that nothing depends on them."""
        old = served.c.seen_at < now() - 2 * max(self._settings.task_removed, self._settings.task_gone)
        async with self._store.write() as connection:
            await connection.execute(delete(served).where(old))

    @staticmethod
    def _is_seen(seconds: float) -> ColumnElement[bool]:
        return served.c.seen_at > now() - seconds
