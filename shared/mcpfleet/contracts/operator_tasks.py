"""Durable tasks as operators see them: on the bus, and never at the clients' endpoint (K14)."""

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
    """The tasks that an operator asks for, and the reason why a task is listed."""

    ALL = "all"
    STUCK = "stuck"
    """No worker has taken it for long, or it goes on long after its cancel."""
    WAITING = "waiting"
    """It waits for its client's answers."""
    RETRIED = "retried"
    """One of its attempts has crashed or failed."""


class ListTasks(Message):
    """An operator lists the tasks that have not ended, the oldest first."""

    why: Why = Why.ALL
    pool: str | None = Field(None, pattern=POOL_PATTERN)
    most: int = Field(50, ge=1, le=MOST_LISTED)


class ListedTask(Message):
    """One task, without its owner's data."""

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
    """The listed tasks."""

    tasks: tuple[ListedTask, ...] = ()
    more: bool = False


class StopTask(Message):
    """An operator ends a task at once, whichever worker runs it."""

    id: TaskId


class TaskStopped(Message):
    """The task's state before and now."""

    known: bool
    status: Status | None = None


LIST = Rpc("tasks.operator.list", ListTasks, Listing, asked_by="operator", repeat=True)
STOP = Rpc("tasks.operator.cancel", StopTask, TaskStopped, asked_by="operator", repeat=True)


class OperatorTasksClient:
    """Asks the tasks service for operators; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 5.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def list(self, request: ListTasks) -> Listing:
        """List tasks."""
        return await ask(self._bus, LIST, request, timeout=self._timeout)

    async def stop(self, task: str) -> TaskStopped:
        """End a task."""
        return await ask(self._bus, STOP, StopTask(id=task), timeout=self._timeout)
