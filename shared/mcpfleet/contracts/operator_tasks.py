"""Durable tasks as operators see them: on the bus, and never on the clients' door (K14)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import Field

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.contracts.tasks import Status, TaskId

MOST_LISTED: Final = 200


class Why(StrEnum):
    """What an operator asks for, and why a task is in the list."""

    ALL = "all"
    STUCK = "stuck"
    """No worker has taken it for long, or it goes on though its cancel was asked for long ago."""
    WAITING = "waiting"
    """It waits for its client's answers."""
    RETRIED = "retried"
    """An attempt of it has crashed or failed."""


class ListTasks(Message):
    """An operator looks at the tasks that have not ended, the oldest first."""

    why: Why = Why.ALL
    pool: str | None = Field(None, pattern=POOL_PATTERN)
    most: int = Field(50, ge=1, le=MOST_LISTED)


class ListedTask(Message):
    """One of them, without what its owner put into it."""

    id: str
    endpoint: str
    pool: str
    name: str
    definition: str
    status: Status
    holder: str | None = None
    """The worker that runs it."""
    attempts: int
    age: float
    """Seconds since its creation."""
    quiet: float
    """Seconds since its last change."""
    cancel_asked: bool = False


class Listing(Message):
    """What there is."""

    tasks: tuple[ListedTask, ...] = ()
    more: bool = False


class StopTask(Message):
    """An operator ends a task at once, whoever runs it."""

    id: TaskId


class TaskStopped(Message):
    """What it was before, and is now."""

    known: bool
    status: Status | None = None


LIST = Rpc("tasks.operator.list", ListTasks, Listing, asked_by="operator", repeat=True)
STOP = Rpc("tasks.operator.cancel", StopTask, TaskStopped, asked_by="operator", repeat=True)


class OperatorTasksClient:
    """What operators ask of the tasks service; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 5.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def list(self, request: ListTasks) -> Listing:
        """Look at tasks."""
        return await ask(self._bus, LIST, request, timeout=self._timeout)

    async def stop(self, task: str) -> TaskStopped:
        """End a task."""
        return await ask(self._bus, STOP, StopTask(id=task), timeout=self._timeout)
