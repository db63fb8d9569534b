"""Reading tasks as their owners: who asks is compared in the statement, so that what is not theirs does not exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, bindparam, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.tasks import Binding, Status, TaskView
from mcpfleet.store.clock import now
from mcpfleet.store.engine import Store
from mcpfleet.store.padding import padded
from mcpfleet.tasks.batches import Batches
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import AnyRow, inputs, states

GOING_ON = (Status.WORKING, Status.INPUT_REQUIRED)
"""The states that are no end."""


@dataclass(frozen=True, slots=True)
class Read:
    """A task that was read."""

    view: TaskView
    origin_digest: str


def is_live() -> ColumnElement[bool]:
    """Whether a task can be read: it goes on, or its retention does."""
    return or_(states.c.status.in_(GOING_ON), states.c.until > now())


def is_owned(task: str, binding: Binding) -> ColumnElement[bool]:
    """Whether a row is this live task of this owner: the one comparison by which all that is not becomes the same."""
    return (states.c.id == task) & (states.c.binding == binding.digest) & is_live()


class Reader:
    """Reads tasks for edges."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._batches: Batches[tuple[str, str], Read | None] = Batches(self._read_all, settings.tasks_batch)

    async def get(self, task: str, binding: Binding) -> TaskView | None:
        """Read a task; none where it is unknown, another's or expired, by the same statement (K8)."""
        read = await self.find(task, binding)
        return read.view if read is not None else None

    async def find(self, task: str, binding: Binding) -> Read | None:
        """The same, with what its maker compares."""
        return await self._batches.do((task, binding.digest))

    async def versions(self, tasks: Sequence[str]) -> dict[str, int]:
        """The versions of those that exist."""
        wanted = select(states.c.id, states.c.version).where(states.c.id.in_(padded(tasks)), is_live())
        async with self._store.read() as connection:
            return {row.id: row.version for row in await connection.execute(wanted)}

    async def _read_all(self, wanted: Sequence[tuple[str, str]]) -> list[Read | None]:
        async with self._store.read() as connection:
            rows = (await connection.execute(_OWNED, {"_owned": padded(list(set(wanted)))})).all()
            requests = await _outstanding(connection, [row.id for row in rows if row.questions])
        found = {(row.id, row.binding): Read(_view(row, requests[row.id]), row.origin_digest) for row in rows}
        return [found.get(each) for each in wanted]


_SHOWN: Final = (
    states.c.id,
    states.c.binding,
    states.c.endpoint,
    states.c.pool,
    states.c.definition,
    states.c.name,
    states.c.origin_digest,
    states.c.status,
    states.c.version,
    states.c.created_at,
    states.c.updated_at,
    states.c.until,
    states.c.poll_ms,
    states.c.questions,
    states.c.message,
    states.c.policy,
    states.c.end,
)

_OWNED: Final = select(*_SHOWN).where(
    tuple_(states.c.id, states.c.binding).in_(bindparam("_owned", expanding=True)), is_live()
)
"""Made once: composing it costs more than running it."""


async def _outstanding(connection: AsyncConnection, tasks: list[str]) -> defaultdict[str, dict[str, str]]:
    """The questions of tasks that have no answer, in the order in which they were asked."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    if tasks:
        wanted = select(inputs.c.task, inputs.c.key, inputs.c.request).where(
            inputs.c.task.in_(tasks), inputs.c.answer.is_(None)
        )
        for task, key, request in await connection.execute(wanted.order_by(inputs.c.task, inputs.c.ordinal)):
            found[task][key] = request
    return found


def _view(row: AnyRow, requests: dict[str, str]) -> TaskView:
    status = Status(row.status)
    if status is Status.INPUT_REQUIRED and not requests:
        # On PostgreSQL the answers may arrive between the two statements.
        status = Status.WORKING
    return TaskView(
        id=row.id,
        status=status,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        # A positive integer (M66).
        ttl_ms=max(1, round((row.until - row.created_at) * 1000)) if status.is_end else None,
        poll_ms=row.poll_ms,
        endpoint=row.endpoint,
        pool=row.pool,
        definition=row.definition,
        name=row.name,
        message=row.message,
        policy=row.policy,
        requests=requests if status is Status.INPUT_REQUIRED else {},
        end=row.end,
    )
