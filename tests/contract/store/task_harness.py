"""Tasks for the tests of their store: how they are made, taken and aged; the clock moves by rows, nothing sleeps."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sqlalchemy import Table, and_, select, update

from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.pool_tasks import (
    Ask,
    Claimed,
    ClaimTasks,
    Defer,
    Extend,
    Extended,
    QuestionsAsked,
    Release,
    Serve,
    Settle,
    TaskLease,
    TaskQuestion,
    TasksClaimed,
)
from mcpfleet.contracts.tasks import (
    Binding,
    CancelTask,
    Create,
    Created,
    NewTask,
    Once,
    Status,
    TaskView,
    Update,
    Updated,
)
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.settings import Bounds
from mcpfleet.tasks.repository import TaskRepository
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.tables import states, watch

POOL = "library"
REPORT = digest_of(b"report")
OWNER = Binding(endpoint="mcp", subject="ann", client="desk", tenant="acme")
OTHERS = (
    OWNER.model_copy(update={"endpoint": "other"}),
    OWNER.model_copy(update={"subject": "bob"}),
    OWNER.model_copy(update={"client": "phone"}),
    OWNER.model_copy(update={"tenant": None}),
)
"""Callers who are not the owner, each by one part alone."""
DONE = '{"_meta":{}, "resultType":"complete","content":[]}'
"""A result, with a space that only its exact text has."""

_NUMBERS = itertools.count(1)


def token() -> str:
    """A fresh digest, as makers choose them."""
    return secrets.token_hex(16)


def a_task(**fields: Any) -> NewTask:
    """A new task, named by nobody before."""
    number = next(_NUMBERS)
    common = {"id": secrets.token_urlsafe(24), "binding": OWNER, "pool": POOL, "definition": REPORT, "name": "report"}
    return NewTask(**{**common, "origin": f'{{"arguments": {{"n": {number}}}}}', **fields})


class TaskHarness:
    """One replica's repository, in short words."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self.store = store
        self.settings = TasksSettings(**settings)
        self.repository = TaskRepository(store, self.settings)

    async def create(self, task: NewTask | None = None, once: Once | None = None) -> Created:
        return await self.repository.creator.create(Create(task=task or a_task(), once=once), lambda _: None)

    async def made(self, **fields: Any) -> TaskView:
        """A task that waits for a worker."""
        created = await self.create(a_task(**fields))
        assert created.task is not None
        return created.task

    async def get(self, task: str, binding: Binding = OWNER) -> TaskView | None:
        return await self.repository.reader.get(task, binding)

    async def seen(self, task: str) -> TaskView:
        view = await self.get(task)
        assert view is not None
        return view

    async def claim(
        self,
        most: int = 1,
        *,
        process: str = "w1",
        held: int = 0,
        definitions: Sequence[str] = (REPORT,),
        claim: str = "",
    ) -> TasksClaimed:
        wanted = ClaimTasks(
            claim=claim or token(), process=process, definitions=tuple(definitions), most=most, held=held
        )
        return await self.repository.claims.claim(POOL, wanted)

    async def taken(self, process: str = "w1") -> Claimed:
        """The one task that waits, held by a worker now."""
        (task,) = (await self.claim(process=process)).tasks
        return task

    async def running(self, process: str = "w1", **fields: Any) -> Claimed:
        """A task that a worker has just taken."""
        await self.made(**fields)
        return await self.taken(process)

    async def settle(self, task: Claimed, status: Status = Status.COMPLETED, end: str | None = DONE) -> bool:
        """Whether the end counted."""
        wanted = Settle(id=task.id, fence=task.fence, status=status, end=end)
        settled, _ = await self.repository.completer.settle(POOL, wanted)
        return not settled.lost

    async def extend(self, *tasks: Claimed, process: str = "w1", **fields: Any) -> Extended:
        held = tuple(TaskLease(id=task.id, fence=task.fence, **fields) for task in tasks)
        extended, _ = await self.repository.claims.extend(POOL, Extend(process=process, tasks=held))
        return extended

    async def release(self, task: Claimed, failed: Settle | None = None) -> Status | None:
        released, _ = await self.repository.claims.release(POOL, Release(id=task.id, fence=task.fence, failed=failed))
        return released.status

    async def ask(self, task: Claimed, *keys: str, keep: bool = False) -> QuestionsAsked:
        questions = tuple(question(key) for key in keys)
        asked, _ = await self.repository.inputs.ask(
            POOL, Ask(id=task.id, fence=task.fence, questions=questions, keep=keep)
        )
        return asked

    async def update(self, task: str, answers: dict[str, str], binding: Binding = OWNER) -> Updated:
        updated, _ = await self.repository.inputs.update(Update(id=task, binding=binding, answers=answers))
        return updated

    async def cancel(self, task: str, binding: Binding = OWNER) -> bool:
        cancelled, _ = await self.repository.canceller.cancel(CancelTask(id=task, binding=binding))
        return cancelled.known

    async def defer(self, task: NewTask, process: str = "w1", once: Once | None = None) -> int:
        return (await self.repository.creator.defer(POOL, Defer(task=task, process=process, once=once))).fence

    async def serve(self, definition: str, *, pool: str = POOL, name: str = "report") -> int:
        """A worker says what it has; how many tasks it has taken on."""
        wanted = Serve(process="w1", tools={name: definition})
        return (await self.repository.tool_reports.serve(pool, wanted))[0].adopted

    async def lapse(self) -> int:
        """Let every lease run out, and take the tasks from their holders."""
        await age(self.store, states, "lease_until", self.settings.task_lease + 1)
        return len(await self.repository.sweeps.lapse())

    async def calm(self) -> None:
        """Be as a fleet is that was never away."""
        await self.repository.open()
        await age(self.store, watch, "grace_until", self.settings.task_lease + 1)


def question(key: str, about: str = "") -> TaskQuestion:
    request = f'{{"method": "elicitation/create", "params": {{"message": "{key}{about}"}}}}'
    return TaskQuestion(key=key, digest=digest_of(request.encode()), request=request)


async def age(store: Store, table: Table, column: str, seconds: float) -> None:
    """Let a moment of all rows lie further back, a row at a time: the product's own statements lock some meanwhile."""
    moment, keys = table.c[column], list(table.primary_key)
    async with store.read() as connection:
        rows = (await connection.execute(select(*keys).where(moment.is_not(None)))).all()
    for row in rows:
        mine = and_(*(key == value for key, value in zip(keys, row, strict=True)))
        async with store.write() as connection:
            await connection.execute(update(table).where(mine).values({column: moment - seconds}))


async def column(store: Store, task: str, name: str) -> Any:
    """The row of a task."""
    async with store.read() as connection:
        return await connection.scalar(select(states.c[name]).where(states.c.id == task))


@asynccontextmanager
async def task_harness(store: Store, **settings: Any) -> AsyncIterator[TaskHarness]:
    """A replica at a calm time."""
    made = TaskHarness(store, **settings)
    await made.calm()
    yield made


@asynccontextmanager
async def replicas(url: str, number: int, **settings: Any) -> AsyncIterator[list[TaskHarness]]:
    """Several replicas, each with a store of its own."""
    async with AsyncExitStack() as opened:
        harnesses = []
        for _ in range(number):
            store = await opened.enter_async_context(
                open_store(url, service="test", embedded=True, singles=True, bounds=Bounds())
            )
            harnesses.append(TaskHarness(store, **settings))
        await harnesses[0].calm()
        yield harnesses
