"""Reading tasks as their owners: the statement compares the owner, so that another owner's task does not exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import ColumnElement, select

from mcpfleet.contracts.tasks import Binding, Owned, Status, TaskView
from mcpfleet.process.batches import Batches
from mcpfleet.store.engine import Store
from mcpfleet.store.errors import OUTAGES
from mcpfleet.store.sql import padded
from mcpfleet.tasks import statements
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.statements import is_live
from mcpfleet.tasks.tables import inputs, states


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task that was read."""

    view: TaskView
    origin_digest: str


def is_owned(task: str, binding: Binding) -> ColumnElement[bool]:
    """Whether a row is this live task of this owner. Unknown, expired and other owners' tasks all look the same."""
    return (states.c.id == task) & (states.c.binding == binding.digest) & is_live()


_NO_REQUESTS: Final[Mapping[str, dict[str, str]]] = MappingProxyType({})


class TaskReader:
    """Reads tasks for edges."""

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self._batches: Batches[tuple[str, str], TaskRecord | None] = Batches(
            self._read_all, settings.tasks_batch, spoils=OUTAGES
        )

    async def get(self, task: str, binding: Binding) -> TaskView | None:
        """Read a task; None where it is unknown, another owner's or expired, by the same statement (K8)."""
        read = await self.find(task, binding)
        return read.view if read is not None else None

    async def get_all(self, wanted: Sequence[Owned]) -> list[TaskView | None]:
        """Read several tasks, each as its owner."""
        found = await self._read_all([(each.id, each.binding.digest) for each in wanted])
        return [read.view if read is not None else None for read in found]

    async def find(self, task: str, binding: Binding) -> TaskRecord | None:
        """Read a task, with the digest that its creator compares."""
        return await self._batches.do((task, binding.digest))

    async def versions(self, tasks: Sequence[str]) -> dict[str, int]:
        """Read the versions of tasks, of those that exist."""
        wanted = select(states.c.id, states.c.version).where(states.c.id.in_(padded(tasks)), is_live())
        async with self._store.read() as connection:
            return {row.id: row.version for row in await connection.execute(wanted)}

    async def _read_all(self, wanted: Sequence[tuple[str, str]]) -> list[TaskRecord | None]:
        rows = await self._rows(list(set(wanted)))
        asking = [row.id for row in rows if row.questions]
        requests = await self._outstanding(asking) if asking else _NO_REQUESTS
        found = {
            (row.id, row.binding): TaskRecord(_view(row, requests.get(row.id, {})), row.origin_digest) for row in rows
        }
        return [found.get(each) for each in wanted]

    async def _rows(self, wanted: Sequence[tuple[str, str]]) -> Sequence[Any]:
        if self._store.singles is not None:
            return await statements.read_singly(self._store.singles, wanted)
        async with self._store.read() as connection:
            return await statements.read(connection, wanted)

    async def _outstanding(self, tasks: list[str]) -> Mapping[str, dict[str, str]]:
        """Read the tasks' questions without an answer, in the order in which they were asked."""
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        wanted = select(inputs.c.task, inputs.c.key, inputs.c.request).where(
            inputs.c.task.in_(tasks), inputs.c.answer.is_(None)
        )
        async with self._store.read() as connection:
            for task, key, request in await connection.execute(wanted.order_by(inputs.c.task, inputs.c.ordinal)):
                found[task][key] = request
        return found


def _view(row: Any, requests: dict[str, str]) -> TaskView:
    status = Status(row.status)
    if status is Status.INPUT_REQUIRED and not requests:
        # The answers arrived between the two statements.
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
