"""Notifications after a commit: work to workers, changes to edges, answers and cancels to holders. Each may be lost."""

from __future__ import annotations

from collections.abc import Iterable

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.contracts.pool_tasks import notify_subject, work_subject
from mcpfleet.contracts.tasks import task_hint_subject, task_key
from mcpfleet.process.events import TaskBegan, TaskEnded
from mcpfleet.process.observers import Observers
from mcpfleet.tasks.rules import TaskChange
from mcpfleet.telemetry.instruments import TasksInstruments
from mcpfleet.telemetry.trace import TraceContext, current


class TaskNotifications:
    """Sends notifications, and never before the commit (K21)."""

    def __init__(
        self, bus: Bus, instruments: TasksInstruments, observers: Observers, *, log: FilteringBoundLogger
    ) -> None:
        self._bus = bus
        self._observers = observers
        self._instruments = instruments
        self._log = log

    def tell(self, changes: Iterable[TaskChange]) -> None:
        """Tell committed changes of tasks. Workers and edges also look by themselves."""
        for change in changes:
            if change.ended is not None:
                self._instruments.ended.add(1, *change.ended)
                if self._observers.is_on:
                    self._observers.tell(TaskEnded, change.task, None, change.ended[0])
            if change.version:
                self._publish(task_hint_subject(task_key(change.task)), str(change.version).encode(), current.get())
            if change.ready is not None:
                pool, definition = change.ready
                self._publish(work_subject(pool), definition.encode())
            if change.notify is not None:
                self._publish(notify_subject(*change.notify), change.task.encode())

    def tell_made(self, task: str, how: str) -> None:
        """Count a task that is made, and tell observers."""
        self._instruments.created.add(1, how)
        if self._observers.is_on:
            self._observers.tell(TaskBegan, task, None)

    def tell_reservation(self, key: str) -> None:
        """Tell that the call of an idempotency key has ended."""
        self._publish(task_hint_subject(key), b"")

    def _publish(self, subject: str, body: bytes, cause: TraceContext | None = None) -> None:
        try:
            self._bus.hint(subject, body, cause)
        except NotRun as error:
            self._log.debug("hint not sent", subject=subject, error=str(error))
