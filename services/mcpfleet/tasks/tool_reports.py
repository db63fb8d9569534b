"""Tasks that a rollout has left behind: their version of a tool has no worker, and another version has (K21).

Workers say what they have. A version that was not heard for `task_gone` is gone; its tasks that wait go on by the
tool's other version, with the steps and answers that they have. A tool that is gone with all its versions ends its
tasks, and says why. Both are judged by a worker that was heard without a gap for as long, so that after an outage, in
which nobody could say anything, every version has its time to be heard again.
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
from mcpfleet.tasks.completion import TaskCompleter
from mcpfleet.tasks.locking import LOCKED_COLUMNS
from mcpfleet.tasks.rules import LACKS_TOOL, ForcedEnd, TaskChange
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import served, states

_AT_ONCE: Final = 200
"""Tasks that one question, or one sweep, looks at."""


class ToolReports:
    """Knows which versions have workers."""

    def __init__(self, store: Store, settings: TasksSettings, completer: TaskCompleter) -> None:
        self._store = store
        self._settings = settings
        self._completer = completer

    async def serve(self, pool: str, wanted: Serve) -> tuple[Served, list[TaskChange]]:
        """Note what a worker has, and give it what waits for versions that are gone."""
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
        """Those of a worker's tools that were heard for so long that others would have been heard as well."""
        long_ago = now() - self._settings.task_gone
        mine = (served.c.pool == pool) & served.c.definition.in_(list(tools.values())) & (served.c.since <= long_ago)
        return {row.name: row.definition for row in await connection.execute(select(served).where(mine))}

    async def _adopt(self, connection: AsyncConnection, pool: str, tools: Mapping[str, str]) -> list[TaskChange]:
        """Let tasks go on by these versions whose own are gone."""
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
        """End tasks that wait for a tool that its pool, which is heard, has not had for `task_removed`."""
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
        """Forget versions that were not heard for so long that nothing depends on them."""
        old = served.c.seen_at < now() - 2 * max(self._settings.task_removed, self._settings.task_gone)
        async with self._store.write() as connection:
            await connection.execute(delete(served).where(old))

    @staticmethod
    def _is_seen(seconds: float) -> ColumnElement[bool]:
        return served.c.seen_at > now() - seconds
