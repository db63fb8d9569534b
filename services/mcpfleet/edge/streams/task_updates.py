"""Tells listen streams of the tasks that they name: hints are heard, and each stream reads with its own rights (K15).

A hint names no task and carries no state. Whoever watches reads again, one task after the other within a stream, and
is told what `tasks/get` would say (M73). What was told never goes back; what a lost hint hid is found by its version.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.actor import consumer_span
from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.tasks import TasksClient, TaskView, is_task_id, task_hint_subject, task_key
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.edge.tasks import results
from mcpfleet.edge.tasks.inputs import check_answerable
from mcpfleet.edge.tasks.read import SERVICE, find
from mcpfleet.edge.tasks.sanitize import Sanitizer
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire.errors import Rejection, not_answered
from mcpfleet.wire.notices import Notice, task_changed
from mcpfleet.wire.reply import NotSpliceable

KEY: Final = "task "
"""Begins the key under which a task's change waits in its stream; no URI does."""
_HINT: Final = task_hint_subject("{key}")
_AT_ONCE: Final = 64
"""Streams whose tasks are read at once."""
_AGAIN: Final = 1.0
"""Seconds before a reading that was not answered is tried again."""


@dataclass(slots=True, eq=False)
class _Watch:
    """One stream's tasks."""

    stream: Stream
    capabilities: dict[str, Any]
    told: dict[str, int]
    """By each task the version that the stream was told last, or that was there when it began."""
    changed: dict[str, TraceContext | None] = field(default_factory=dict)
    """Tasks to be read, in the order of their first hints, and what changed them where that is recorded."""
    untold: set[str] = field(default_factory=set)
    """Tasks of which the version in `told` did not reach the stream: it is to be told as if it were newer."""
    is_running: bool = False
    has_begun: bool = False

    def lacks(self, task: str, version: int) -> bool:
        """Whether a version is one to tell of; of a task that the stream does not name, none is."""
        told = self.told.get(task)
        return told is not None and (version > told or (version == told and task in self.untold))

    def note_told(self, task: str, version: int) -> None:
        """Note what the stream is told."""
        self.told[task] = version
        self.untold.discard(task)

    def drop(self, task: str) -> None:
        """Name a task no more."""
        del self.told[task]
        self.untold.discard(task)


class TaskUpdates:
    """Watches tasks for streams."""

    def __init__(
        self,
        bus: Bus,
        client: TasksClient,
        showing: Sanitizer,
        settings: EdgeSettings,
        *,
        tracer: Tracer,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._client = client
        self._showing = showing
        self._settings = settings
        self._tracer = tracer
        self._log = log
        self._watches: dict[Stream, _Watch] = {}
        self._by_key: dict[str, dict[_Watch, str]] = {}
        """By the hint's key: who watches, and the task's id."""
        self._heard: dict[str, Subscription] = {}
        self._places = anyio.Semaphore(_AT_ONCE)
        self._gap_is_over = anyio.Event()
        self._tasks: TaskGroup | None = None
        bus.on_link(self._on_link)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read what has changed, and compare versions from time to time, until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            while True:
                with anyio.move_on_after(self._settings.heal_interval * random.uniform(0.75, 1.25)):  # noqa: S311  # no secret
                    await self._gap_is_over.wait()
                self._gap_is_over = anyio.Event()
                await self._heal()

    # -- watching -----------------------------------------------------------------------------------------------------

    def join(self, stream: Stream) -> bool:
        """Take the places of a stream's tasks until `unwatch`; false, and none, where there are too few.

        All at once: streams that open together would each find the places free that they all are about to take.
        """
        keys = {task_key(task): task for task in stream.honoured.task_ids if is_task_id(task)}
        if len(self._by_key) + len(keys.keys() - self._by_key.keys()) > self._settings.watched_tasks:
            return False
        watch = self._watches[stream] = _Watch(stream, {}, dict.fromkeys(keys.values(), 0))
        for key, task in keys.items():
            self._by_key.setdefault(key, {})[watch] = task
        return True

    async def watch(self, stream: Stream, capabilities: dict[str, Any]) -> None:
        """Hear the hints of what a stream has joined with; those that come before it begins are kept (K18)."""
        watch = self._watches[stream]
        watch.capabilities = capabilities
        for task in list(watch.told):
            key = task_key(task)
            if key not in self._heard:
                subscription = await self._bus.subscribe(task_hint_subject(key), self._on_hint)
                if key in self._heard or key not in self._by_key:  # in the meantime
                    await self._bus.leave(subscription)
                else:
                    self._heard[key] = subscription

    def unwatch(self, stream: Stream) -> None:
        """Undo `join` and `watch`, whether or not that came to its end."""
        watch = self._watches.pop(stream, None)
        if watch is None:
            return
        for task in watch.told:
            self._forget(watch, task)

    def _forget(self, watch: _Watch, task: str) -> None:
        key = task_key(task)
        watchers = self._by_key.get(key, {})
        watchers.pop(watch, None)
        if not watchers:
            self._by_key.pop(key, None)
            subscription = self._heard.pop(key, None)
            if subscription is not None and self._tasks is not None:
                self._tasks.start_soon(self._bus.leave, subscription)

    async def accept(self, stream: Stream) -> None:
        """Look each task up, and leave those out that are not there for the stream's caller (K16, D2).

        Raises:
            Rejection: 504.
        """
        watch = self._watches[stream]
        for task in list(watch.told):
            try:
                view = await self._read(stream, task)
            except BusError:
                raise not_answered(SERVICE) from None
            if view is None:
                watch.drop(task)
                self._forget(watch, task)
            elif task not in watch.changed:
                watch.told[task] = view.version
        stream.honoured = replace(stream.honoured, task_ids=tuple(watch.told))
        watch.changed = {task: cause for task, cause in watch.changed.items() if task in watch.told}
        watch.has_begun = True
        self._go_on(watch)

    # -- what changes -------------------------------------------------------------------------------------------------

    def _on_hint(self, message: Incoming) -> None:
        key = message.subject.rpartition(".")[2]
        version = int(message.body[:18]) if message.body.isdigit() else 0
        sent = header.read(message.header)
        for watch, task in list(self._by_key.get(key, {}).items()):
            if watch.lacks(task, version) or not watch.has_begun:
                self.look_again(watch.stream, task, sent.trace if sent is not None else None)

    def look_again(self, stream: Stream, task: str, cause: TraceContext | None = None) -> None:
        """Read a task for a stream, and tell it what is new."""
        watch = self._watches.get(stream)
        if watch is not None and task in watch.told:
            watch.changed.setdefault(task, cause)
            self._go_on(watch)

    def tell_again(self, stream: Stream, task: str) -> None:
        """Read a task for a stream of which what waited was not told: it may be as whom it belongs to now (S4)."""
        watch = self._watches.get(stream)
        if watch is not None and task in watch.told:
            watch.untold.add(task)
            self.look_again(stream, task)

    def _go_on(self, watch: _Watch) -> None:
        if watch.has_begun and watch.changed and not watch.is_running and self._tasks is not None:
            watch.is_running = True
            self._tasks.start_soon(self._project, watch)

    async def _project(self, watch: _Watch) -> None:
        """Read a stream's changed tasks, one after the other (K17)."""
        try:
            async with self._places:
                while watch.changed and not watch.stream.is_over and watch.stream in self._watches:
                    task = next(iter(watch.changed))
                    cause = watch.changed.pop(task)
                    with self._told_of(task, cause):
                        was_read = await self._tell(watch, task)
                    if not was_read:
                        watch.changed.setdefault(task, cause)
                        await anyio.sleep(_AGAIN)
        finally:
            watch.is_running = False

    def _told_of(self, task: str, cause: TraceContext | None) -> AbstractContextManager[object]:
        """The span of telling one stream; none where nobody records the change."""
        if cause is None or not cause.sampled:
            return nullcontext()
        return consumer_span(self._tracer, _HINT, task_hint_subject(task_key(task)), cause, links=[cause])

    async def _tell(self, watch: _Watch, task: str) -> bool:
        """Tell a stream what a task is now; false where nobody could be asked.

        What this stream's caller may not see now is not told, and counts as untold: healing comes back to it (K12).
        """
        principal = watch.stream.permission.principal
        try:
            view = await self._read(watch.stream, task)
        except BusError:
            return False
        if view is None or not watch.lacks(task, view.version):
            return True
        notice = await self._notice(watch, view, principal)
        if watch.stream.permission.principal != principal:  # it was cleared for who may not see as much any more
            return False
        if notice is not None and watch.lacks(task, view.version):
            watch.note_told(task, view.version)
            watch.stream.offer_newest(KEY + task, notice)
        return True

    async def _notice(self, watch: _Watch, view: TaskView, principal: Principal) -> Notice | None:
        """What a poll would say; none where that would be refused (K11, K12)."""
        try:
            check_answerable(view.requests, watch.capabilities)
            return task_changed(results.detailed(await self._showing.shown(view, principal, watch.capabilities)))
        except Rejection:
            return None
        except NotSpliceable as error:
            self._log.error("a task's end is malformed", pool=view.pool, error=str(error))
            return None

    async def _read(self, stream: Stream, task: str) -> TaskView | None:
        return await find(self._client, task, stream.endpoint, stream.permission.principal)

    # -- healing ------------------------------------------------------------------------------------------------------

    def _on_link(self, is_up: bool) -> None:
        if is_up:
            self._gap_is_over.set()

    async def _heal(self) -> None:
        """Find changes whose hints were lost."""
        watched = {task for watchers in self._by_key.values() for task in watchers.values()}
        if not watched:
            return
        try:
            versions = await self._client.versions(watched)
        except BusError as error:
            self._log.debug("the versions of tasks are not known", error=str(error))
            return
        for watch in list(self._watches.values()):
            for task in list(watch.told):
                if watch.lacks(task, versions.get(task, 0)) and watch.has_begun:
                    self.look_again(watch.stream, task)
