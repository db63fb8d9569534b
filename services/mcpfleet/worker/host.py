"""What the application tells its worker, from whichever thread: what it declares has changed, or a resource has."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import anyio

from mcpfleet.app import App
from mcpfleet.telemetry.trace import TraceContext, current
from mcpfleet.worker.actor import CallActor
from mcpfleet.worker.announcer import Announcer
from mcpfleet.worker.crossing import Crossing
from mcpfleet.worker.publisher import Publisher
from mcpfleet.worker.runner import Runner
from mcpfleet.worker.tasks.actor import TaskActor

_Published: TypeAlias = tuple[str, TraceContext | None]
"""A URI, and the work that changed what is read there."""
_CHANGED: Final = None
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
        self._told: Crossing[_Published | None] = Crossing(asyncio.get_running_loop(), self._hear)

    def changed(self) -> None:
        """Hear that the App declares something else than before; on any thread."""
        self._told.put(_CHANGED)

    def publish(self, uri: str) -> None:
        """Tell who watches a URI; on any thread."""
        self._told.put((uri, current.get()))

    def _hear(self, told: _Published | None) -> None:
        if told is _CHANGED:
            self._has_changed.set()
        else:
            self._publisher.publish(*told)

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
        await self._announcer.replace(self._app.manifest())
        await self._actor.leave_others()
        self._runner.forget_others(handlers, self._actor.held_definitions() | self._tasks.held_definitions())
