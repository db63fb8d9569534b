"""Makes a task of a call while its handler runs: `ctx.defer()`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from mcpfleet.app import ClientLacks, Progress
from mcpfleet.app.task import DeferredCall
from mcpfleet.contracts.call import CallBody, Deferring
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import Binding, NewTask, new_task_id
from mcpfleet.wire.protocol import TASKS
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.tasks.replay import TaskReplay
from mcpfleet.worker.tasks.requests import TaskRequests
from mcpfleet.worker.work import CallWork, TaskKey


@dataclass(slots=True, eq=False)
class Deferral:
    """Makes a task of one call."""

    work: CallWork
    call: CallBody
    definition: Definition
    replay: Replay
    requests: TaskRequests | None
    become: Callable[[TaskKey, TaskReplay], Callable[[Progress], None]]
    """Has the run go by the task's key, without the call's deadline; returns what takes its progress."""

    @property
    def can(self) -> bool:
        """Whether the client takes a handle."""
        return self.call.deferring is not None and self.requests is not None

    async def __call__(self) -> DeferredCall:
        """Make the task.

        Raises:
            ClientLacks: the client takes no handle.
            BusError: the tasks service does not answer.
        """
        deferring, requests = self.call.deferring, self.requests
        if deferring is None or requests is None:
            raise ClientLacks([TASKS])
        task = self._task(deferring, requests.pool)
        # A cancel of the call meanwhile cancels the task's run right after: nobody must lose sight of it.
        with anyio.CancelScope(shield=True):
            key = await requests.defer(self.work, task, self.call.once)
        replay = TaskReplay(key, requests, self.replay)
        report = self.become(key, replay)
        return DeferredCall(replay, report, time.monotonic() + self.definition.run_limit)

    def _task(self, deferring: Deferring, pool: str) -> NewTask:
        definition = self.definition
        # Answers and steps go with the task: nothing is asked or done again (M69).
        call = replace(self.call, answers=None, memory=self.replay.memory(), deferring=None, once=None, log_level=None)
        return NewTask(
            id=new_task_id(),
            binding=Binding.of(deferring.endpoint, call.principal),
            pool=pool,
            definition=self.work.definition,
            name=definition.name,
            origin=Origin(deferring.endpoint, call, self.work.trace).write(),
            policy=deferring.policy,
            run_limit=definition.run_limit,
            retention=definition.retention,
        )
