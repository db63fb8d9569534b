"""Makes a task of a call while its handler runs: `ctx.defer()`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from mcpfleet.app import ClientLacks, Progress
from mcpfleet.app.task import DeferredCall
from mcpfleet.contracts.call import CallBody
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import Binding, NewTask, new_task_id
from mcpfleet.wire.capabilities import TASKS
from mcpfleet.worker.calls.table import Held, Key
from mcpfleet.worker.frames import Report
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.tasks.completion import status_message
from mcpfleet.worker.tasks.replay import TaskReplay
from mcpfleet.worker.tasks.side import TaskSide


@dataclass(slots=True, eq=False)
class Deferral:
    """Makes a task of one call."""

    held: Held
    call: CallBody
    definition: Definition
    pool: str
    rounds: Replay
    side: TaskSide | None
    become: Callable[[Key, TaskReplay], None]
    """Has the run go by the task's name, without the call's deadline."""
    tell: Callable[[Report], None]

    @property
    def can(self) -> bool:
        """Whether the client takes a handle."""
        return self.call.deferring is not None and self.side is not None

    async def __call__(self) -> DeferredCall:
        """Make the task.

        Raises:
            ClientLacks: the client takes none.
            BusError: the tasks service does not answer.
        """
        deferring, side = self.call.deferring, self.side
        if deferring is None or side is None:
            raise ClientLacks([TASKS])
        task = self._task()
        # Whoever cancels the call meanwhile cancels the task's run right after: nobody must lose sight of it.
        with anyio.CancelScope(shield=True):
            key = await side.defer(self.held, task, self.call.once)
        asker = TaskReplay(task.id, key, side, self.rounds)
        self.become(key, asker)
        return DeferredCall(asker, status_reporter(key, self.tell), time.monotonic() + self.definition.run_limit)

    def _task(self) -> NewTask:
        assert self.call.deferring is not None
        deferring, definition = self.call.deferring, self.definition
        # What was answered and remembered goes with the task, and is not asked again (M69).
        call = replace(self.call, answers=None, memory=self.rounds.memory(), deferring=None, once=None, log_level=None)
        return NewTask(
            id=new_task_id(),
            binding=Binding.of(deferring.endpoint, call.principal),
            pool=self.pool,
            definition=self.held.definition,
            name=definition.name,
            origin=Origin(deferring.endpoint, call, self.held.trace).write(),
            policy=deferring.policy,
            run_limit=definition.run_limit,
            retention=definition.retention,
        )


def _number(value: float) -> float:
    """The value as a double; an integer may be larger than any."""
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def status_reporter(key: Key, tell: Callable[[Report], None]) -> Callable[[Progress], None]:
    """Make what takes a task's progress: its status message."""

    def report(progress: Progress) -> None:
        value, total = _number(progress.value), progress.total
        reached = f"{value:g}" if total is None else f"{value:g} of {_number(total):g}"
        text = f"{progress.message} ({reached})" if progress.message else reached
        tell(Report(key, status_message(text).encode(errors="replace"), value))

    return report
