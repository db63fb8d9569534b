"""The handlers for edges and operators: each changes the store, and sends notifications after the commit."""

from __future__ import annotations

from itertools import accumulate, takewhile
from typing import Final

from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.contracts import operator_tasks
from mcpfleet.contracts import tasks as contract
from mcpfleet.contracts.operator_tasks import Listing, ListTasks, StopTask, TaskStopped
from mcpfleet.contracts.tasks import (
    CancelTask,
    Create,
    Created,
    Found,
    Get,
    KeyOutcome,
    Reserve,
    Reserved,
    TaskCancelled,
    TaskView,
    Update,
    Updated,
    Versions,
    VersionsWanted,
)
from mcpfleet.tasks.notifications import TaskNotifications
from mcpfleet.tasks.repository import TaskRepository
from mcpfleet.tasks.rules import TaskChange
from mcpfleet.telemetry.instruments import TasksInstruments

GROUP: Final = "tasks"
_ANSWER_LIMIT: Final = 256 * 1024
"""Characters of the tasks in one answer that has several."""


class TasksActor:
    """Answers edges, on behalf of their callers, and operators."""

    def __init__(
        self, repository: TaskRepository, notifications: TaskNotifications, instruments: TasksInstruments
    ) -> None:
        self._repository = repository
        self._notifications = notifications
        self._instruments = instruments

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(contract.CREATE, self.create, group=GROUP)
        await actor.answer(contract.GET, self.get, group=GROUP)
        await actor.answer(contract.UPDATE, self.update, group=GROUP)
        await actor.answer(contract.CANCEL, self.cancel, group=GROUP)
        await actor.answer(contract.VERSIONS, self.versions, group=GROUP)
        await actor.answer(contract.RESERVE, self.reserve, group=GROUP)
        await actor.answer(operator_tasks.LIST, self.list, group=GROUP)
        await actor.answer(operator_tasks.STOP, self.stop, group=GROUP)

    async def create(self, question: Create, context: RpcContext) -> Created:  # noqa: ARG002
        """Make a task that waits for a worker."""
        return await self._repository.creator.create(question, self._tell_made)

    def _tell_made(self, change: TaskChange) -> None:
        self._notifications.tell_made(change.task, "created")
        self._notifications.tell([change])

    async def get(self, question: Get, context: RpcContext) -> Found:  # noqa: ARG002
        """Read a task for its owner, and more tasks for theirs, as far as they fit into the answer."""
        if not question.others:
            return Found(task=await self._repository.reader.get(question.id, question.binding))
        found = await self._repository.reader.get_all((question, *question.others))
        fit = list(takewhile(lambda size: size < _ANSWER_LIMIT, accumulate(map(_size, found))))
        return Found(task=found[0], others=tuple(found[1 : len(fit)]))

    async def update(self, question: Update, context: RpcContext) -> Updated:  # noqa: ARG002
        """Take a client's answers."""
        updated, changes = await self._repository.inputs.update(question)
        self._notifications.tell(changes)
        return updated

    async def cancel(self, question: CancelTask, context: RpcContext) -> TaskCancelled:  # noqa: ARG002
        """Store a client's request to cancel a task."""
        cancelled, changes = await self._repository.canceller.cancel(question)
        self._notifications.tell(changes)
        return cancelled

    async def versions(self, question: VersionsWanted, context: RpcContext) -> Versions:  # noqa: ARG002
        """Return the versions of tasks, which an edge compares with those that its streams know."""
        return Versions(versions=await self._repository.reader.versions(question.ids))

    async def reserve(self, question: Reserve, context: RpcContext) -> Reserved:  # noqa: ARG002
        """Reserve an idempotency key for a call, or end its reservation."""
        reserved = await self._repository.keys.reserve(question)
        if question.ended is not None:
            self._notifications.tell_reservation(question.once.key)
        self._instruments.reserved.add(1, KeyOutcome(reserved.outcome))
        return reserved

    async def list(self, question: ListTasks, context: RpcContext) -> Listing:  # noqa: ARG002
        """List tasks for an operator."""
        return await self._repository.lister.list(question)

    async def stop(self, question: StopTask, context: RpcContext) -> TaskStopped:  # noqa: ARG002
        """End a task for an operator."""
        stopped, changes = await self._repository.canceller.stop(question)
        self._notifications.tell(changes)
        return stopped


def _size(view: TaskView | None) -> int:
    """Characters of a task's large parts."""
    return 0 if view is None else len(view.end or "") + sum(map(len, view.requests.values()))
