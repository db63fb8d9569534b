"""Follows an application that changes while it is served: another declaration, or a resource that has changed."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import anyio

from mcpfleet.contracts.hints import Change
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.telemetry.trace import TraceContext, current
from mcpfleet.worker.announcer import Announcer
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.permits import PermitActor
from mcpfleet.worker.publisher import Publisher
from mcpfleet.worker.runner import HandlerTable
from mcpfleet.worker.tasks.actor import TaskActor

_Told: TypeAlias = tuple[Change | None, TraceContext | None]
"""The change, or None if the App declares something else; and the work that made it."""
_SETTLES: Final = 0.05
"""Seconds in which several changes become one."""


class WorkerHost:
    """Serves an App: its changes come on any thread, and are followed on the bus's loop."""

    def __init__(
        self,
        handlers: HandlerTable,
        calls: CallActor,
        tasks: TaskActor,
        announcer: Announcer,
        *,
        publisher: Publisher,
        permits: PermitActor,
    ) -> None:
        """Hear nothing yet; made on the bus's loop.

        Args:
            handlers: what can be run, and the App.
            calls: takes calls of what the App declares.
            tasks: takes tasks of it.
            announcer: announces it.
            publisher: sends hints of changed resources and lists.
            permits: answers for its permits.
        """
        self._app = handlers.app
        self._handlers = handlers
        self._calls = calls
        self._tasks = tasks
        self._announcer = announcer
        self._publisher = publisher
        self._permits = permits
        self._has_changed = AutoResetEvent()
        self._cause: TraceContext | None = None
        """The first work that changed the declaration since the last announcement."""
        self._changes: LoopBridge[_Told] = LoopBridge(asyncio.get_running_loop(), self._take)
        self._permits_changed = LoopBridge(asyncio.get_running_loop(), permits.changed)

    def changed(self) -> None:
        """Hear that the App declares something else than before; on any thread."""
        self._changes.put((None, current.get()))

    def publish(self, change: Change) -> None:
        """Tell those who watch it that something has changed; on any thread."""
        self._changes.put((change, current.get()))

    def permits_changed(self, uris: frozenset[str]) -> None:
        """Tell edges that permits decide otherwise now; on any thread."""
        self._permits_changed.put(uris)

    def _take(self, told: _Told) -> None:
        change, cause = told
        if change is not None:
            self._publisher.publish(change, cause)
            return
        self._cause = self._cause or cause
        self._has_changed.set()

    def begin(self) -> None:
        """Take what the App declares now that its lifespans are entered: that is announced at first."""
        self._handlers.learn()
        self._announcer.begin_with(self._app.manifest())

    async def run(self) -> None:
        """Follow the App's changes until cancelled."""
        self._app.hosts.add(self)
        self._has_changed.set()  # it may have changed since this worker was described
        try:
            while True:
                await self._has_changed.wait()
                await anyio.sleep(_SETTLES)
                self._has_changed.clear()
                await self._follow()
        finally:
            self._app.hosts.remove(self)

    async def _follow(self) -> None:
        """Take calls of what is new, announce it, and only then take no call of what is gone. Its last calls run on."""
        handlers = self._handlers.learn()
        await self._calls.join({digest: each.definition.kind for digest, each in handlers.items()})
        await self._permits.offer(self._app.permitters)
        tools = {each.definition.name: digest for digest, each in handlers.items() if each.definition.task is not None}
        await self._tasks.offer(tools)
        cause, self._cause = self._cause, None
        await self._announcer.replace(self._app.manifest(), cause)
        await self._calls.leave_others()
        self._handlers.forget_others(handlers, self._calls.held_definitions() | self._tasks.held_definitions())
