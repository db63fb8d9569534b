"""What the application tells its worker, from whichever thread: what it declares has changed, or a resource has."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import anyio

from mcpfleet.app import App
from mcpfleet.telemetry.trace import TraceContext, current
from mcpfleet.worker.announcer import Announcer
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.publisher import Publisher
from mcpfleet.worker.runner import Runner
from mcpfleet.worker.tasks.actor import TaskActor

_Told: TypeAlias = tuple[str | None, TraceContext | None]
"""A URI, or none where it is what the App declares that has changed; and the work that changed it."""
_SETTLES: Final = 0.05
"""Seconds in which several changes become one."""


class WorkerHost:
    """Serves an App that changes while it is served."""

    def __init__(  # noqa: PLR0917  # each hears of it
        self,
        app: App,
        runner: Runner,
        actor: CallActor,
        tasks: TaskActor,
        announcer: Announcer,
        publisher: Publisher,
    ) -> None:
        """Hear nothing yet; made on the bus's loop."""
        self._app = app
        self._runner = runner
        self._actor = actor
        self._tasks = tasks
        self._announcer = announcer
        self._publisher = publisher
        self._has_changed = anyio.Event()
        self._cause: TraceContext | None = None
        """The first work that changed what is declared since it was announced last."""
        self._told: LoopBridge[_Told] = LoopBridge(asyncio.get_running_loop(), self._hear)

    def changed(self) -> None:
        """Hear that the App declares something else than before; on any thread."""
        self._told.put((None, current.get()))

    def publish(self, uri: str) -> None:
        """Tell who watches a URI, or of `LISTS` who listens to lists; on any thread."""
        self._told.put((uri, current.get()))

    def _hear(self, told: _Told) -> None:
        uri, cause = told
        if uri is not None:
            self._publisher.publish(uri, cause)
            return
        self._cause = self._cause or cause
        self._has_changed.set()

    async def run(self) -> None:
        """Follow the App's changes until cancelled."""
        self._app.hosts.add(self)
        self._has_changed.set()  # it may have changed since this worker was described
        try:
            while True:
                await self._has_changed.wait()
                await anyio.sleep(_SETTLES)
                self._has_changed = anyio.Event()
                await self._follow()
        finally:
            self._app.hosts.remove(self)

    async def _follow(self) -> None:
        """Take calls of what is new, say so, and only then take none of what is gone; its last calls still run."""
        handlers = {each.definition.digest: each for each in self._app.handlers}
        self._runner.learn(handlers)
        await self._actor.join({digest: each.definition.kind for digest, each in handlers.items()})
        tasking = {
            each.definition.name: digest for digest, each in handlers.items() if each.definition.task is not None
        }
        await self._tasks.offer(tasking)
        cause, self._cause = self._cause, None
        await self._announcer.replace(self._app.manifest(), cause)
        await self._actor.leave_others()
        self._runner.forget_others(handlers, self._actor.held_definitions() | self._tasks.held_definitions())
