"""Sends listen streams the changes of the tasks that they name; each task is read with its caller's rights (K15).

A hint carries no state: the edge reads the task again, one task after the other for each stream. The stream is sent
what `tasks/get` would return (M73), and never an older version than before. Comparing versions finds what a lost hint
has hidden.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.actor import hint_span
from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.tasks import TasksClient, TaskView, is_task_id, task_hint_subject, task_key
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.edge.tasks import results
from mcpfleet.edge.tasks.inputs import check_answerable
from mcpfleet.edge.tasks.read import SERVICE, find, language_of
from mcpfleet.edge.tasks.sanitize import Sanitizer
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire.errors import Rejection, not_answered
from mcpfleet.wire.notices import Notice, task_changed
from mcpfleet.wire.reply import NotSpliceable

KEY: Final = "task "
"""The prefix of the keys under which tasks' changes wait in streams; no URI begins with it."""
_HINT: Final = task_hint_subject("{key}")
_AT_ONCE: Final = 64
"""Streams whose tasks are read at once."""
_RETRY: Final = 1.0
"""Seconds after which a task is read again that could not be read."""


@dataclass(slots=True, eq=False)
class _Watch:
    """One stream's tasks."""

    stream: Stream
    capabilities: dict[str, Any]
    versions: dict[str, int]
    """By tasks, the version that the stream was sent last, or that the task had as the stream began."""
    changed: dict[str, TraceContext | None] = field(default_factory=dict)
    """Tasks to be read, in the order of their first hints, and the traces of their changes where they are recorded."""
    unsent: set[str] = field(default_factory=set)
    """Tasks whose version in `versions` did not reach the stream, and counts as newer."""
    is_running: bool = False
    has_begun: bool = False

    def lacks(self, task: str, version: int) -> bool:
        """Return whether the stream needs a version; it needs none of a task that it does not name."""
        sent = self.versions.get(task)
        return sent is not None and (version > sent or (version == sent and task in self.unsent))

    def note_sent(self, task: str, version: int) -> None:
        """Note the version that the stream is sent."""
        self.versions[task] = version
        self.unsent.discard(task)

    def drop(self, task: str) -> None:
        """Remove a task."""
        del self.versions[task]
        self.unsent.discard(task)


class TaskUpdates:
    """Subscribes to tasks' hints, reads changed tasks, and queues them for streams."""

    def __init__(
        self,
        bus: Bus,
        client: TasksClient,
        sanitizer: Sanitizer,
        settings: EdgeSettings,
        *,
        tracer: Tracer,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._client = client
        self._sanitizer = sanitizer
        self._settings = settings
        self._tracer = tracer
        self._log = log
        self._watches: dict[Stream, _Watch] = {}
        self._by_key: dict[str, dict[_Watch, str]] = {}
        """By the keys of hints, the watches and their tasks' ids."""
        self._subscriptions: dict[str, Subscription] = {}
        self._places = anyio.Semaphore(_AT_ONCE)
        self._gap_is_over = AutoResetEvent()
        self._tasks: TaskGroup | None = None
        bus.on_link(self._on_link)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read changed tasks, and compare versions from time to time, until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            while True:
                await self._gap_is_over.wait(self._settings.heal_interval * random.uniform(0.75, 1.25))  # noqa: S311  # no secret
                await self._compare_versions()

    # -- watching -----------------------------------------------------------------------------------------------------

    def join(self, stream: Stream) -> bool:
        """Take a place for each of a stream's tasks until `unwatch`; return False where too few are left.

        It takes all of them without waiting: streams that open together would else find the same places free.
        """
        keys = {task_key(task): task for task in stream.honoured.task_ids if is_task_id(task)}
        if len(self._by_key) + len(keys.keys() - self._by_key.keys()) > self._settings.watched_tasks:
            return False
        watch = self._watches[stream] = _Watch(stream, {}, dict.fromkeys(keys.values(), 0))
        for key, task in keys.items():
            self._by_key.setdefault(key, {})[watch] = task
        return True

    async def watch(self, stream: Stream, capabilities: dict[str, Any]) -> None:
        """Subscribe to the hints of a stream's tasks; changes before the stream begins are kept (K18)."""
        watch = self._watches[stream]
        watch.capabilities = capabilities
        for task in list(watch.versions):
            key = task_key(task)
            if key not in self._subscriptions:
                subscription = await self._bus.subscribe(task_hint_subject(key), self._on_hint)
                if (
                    key in self._subscriptions or key not in self._by_key
                ):  # another stream has subscribed, or all have left, meanwhile
                    await self._bus.leave(subscription)
                else:
                    self._subscriptions[key] = subscription

    def unwatch(self, stream: Stream) -> None:
        """Undo `join` and `watch`, whether that has returned or was cancelled."""
        watch = self._watches.pop(stream, None)
        if watch is None:
            return
        for task in watch.versions:
            self._forget(watch, task)

    def _forget(self, watch: _Watch, task: str) -> None:
        key = task_key(task)
        watchers = self._by_key.get(key, {})
        watchers.pop(watch, None)
        if not watchers:
            self._by_key.pop(key, None)
            subscription = self._subscriptions.pop(key, None)
            if subscription is not None and self._tasks is not None:
                self._tasks.start_soon(self._bus.leave, subscription)

    async def accept(self, stream: Stream) -> None:
        """Look each task up, and remove those that the stream's caller may not see (K16, D2).

        Raises:
            Rejection: 504.
        """
        watch = self._watches[stream]
        for task in list(watch.versions):
            try:
                view = await self._read(stream, task)
            except BusError:
                raise not_answered(SERVICE) from None
            if view is None:
                watch.drop(task)
                self._forget(watch, task)
            elif task not in watch.changed:
                watch.versions[task] = view.version
        stream.honoured = replace(stream.honoured, task_ids=tuple(watch.versions))
        watch.changed = {task: cause for task, cause in watch.changed.items() if task in watch.versions}
        watch.has_begun = True
        self._start(watch)

    def drop(self, stream: Stream, task: str) -> None:
        """Let a stream hear no more of a task."""
        watch = self._watches.get(stream)
        if watch is not None and task in watch.versions:
            watch.drop(task)
            self._forget(watch, task)
        stream.withdraw(KEY + task)

    # -- changes -------------------------------------------------------------------------------------------------------

    def _on_hint(self, message: Incoming) -> None:
        key = message.subject.rpartition(".")[2]
        version = int(message.body[:18]) if message.body.isdigit() else 0
        sent = header.read(message.header)
        for watch, task in list(self._by_key.get(key, {}).items()):
            if watch.lacks(task, version) or not watch.has_begun:
                self.read_again(watch.stream, task, sent.trace if sent is not None else None)

    def read_again(self, stream: Stream, task: str, cause: TraceContext | None = None) -> None:
        """Read a task for a stream, and send what is new."""
        watch = self._watches.get(stream)
        if watch is not None and task in watch.versions:
            watch.changed.setdefault(task, cause)
            self._start(watch)

    def send_again(self, stream: Stream, task: str) -> None:
        """Read a task again whose change did not reach the stream: its caller may have other rights now (S4)."""
        watch = self._watches.get(stream)
        if watch is not None and task in watch.versions:
            watch.unsent.add(task)
            self.read_again(stream, task)

    def _start(self, watch: _Watch) -> None:
        if watch.has_begun and watch.changed and not watch.is_running and self._tasks is not None:
            watch.is_running = True
            self._tasks.start_soon(self._send_changes, watch)

    async def _send_changes(self, watch: _Watch) -> None:
        """Read and send a stream's changed tasks, one after the other (K17)."""
        try:
            async with self._places:
                while watch.changed and not watch.stream.is_over and watch.stream in self._watches:
                    task = next(iter(watch.changed))
                    cause = watch.changed.pop(task)
                    with hint_span(self._tracer, _HINT, partial(_hint_subject, task), cause):
                        was_read = await self._send(watch, task)
                    if not was_read:
                        watch.changed.setdefault(task, cause)
                        await anyio.sleep(_RETRY)
        finally:
            watch.is_running = False

    async def _send(self, watch: _Watch, task: str) -> bool:
        """Send a stream a task as it is now; return False where the task could not be read.

        A version that the caller may not see now is not sent, and stays needed: comparing versions retries it (K12).
        """
        principal = watch.stream.lease.principal
        try:
            view = await self._read(watch.stream, task)
        except BusError:
            return False
        if view is None or not watch.lacks(task, view.version):
            if view is None:
                watch.stream.withdraw(KEY + task)
            else:
                watch.stream.settle(KEY + task)
            return True
        notice = await self._notice(watch, view, principal)
        if watch.stream.lease.principal != principal:  # it was sanitized for other rights than those of now
            return False
        if notice is not None and watch.lacks(task, view.version):
            watch.note_sent(task, view.version)
            watch.stream.offer_newest(KEY + task, notice)
        elif notice is None:
            watch.stream.withdraw(KEY + task)
        return True

    async def _notice(self, watch: _Watch, view: TaskView, principal: Principal) -> Notice | None:
        """Return what a poll would get; None where the poll would be refused (K11, K12)."""
        try:
            check_answerable(view.requests, watch.capabilities)
            shown = results.detailed(await self._sanitizer.sanitize(view, principal, watch.capabilities))
            return task_changed(shown, language_of(view.policy) if watch.stream.tells_language else None)
        except Rejection:
            return None
        except NotSpliceable as error:
            self._log.error("malformed task end", pool=view.pool, error=str(error))
            return None

    async def _read(self, stream: Stream, task: str) -> TaskView | None:
        return await find(self._client, task, stream.endpoint, stream.lease.principal)

    # -- recovery -----------------------------------------------------------------------------------------------------

    def _on_link(self, is_up: bool) -> None:
        if is_up:
            self._gap_is_over.set()

    async def _compare_versions(self) -> None:
        """Find changes whose hints were lost."""
        watched = {task for watchers in self._by_key.values() for task in watchers.values()}
        if not watched:
            return
        try:
            versions = await self._client.versions(watched)
        except BusError as error:
            self._log.debug("task versions not read", error=str(error))
            return
        for watch in list(self._watches.values()):
            for task in list(watch.versions):
                if watch.lacks(task, versions.get(task, 0)) and watch.has_begun:
                    self.read_again(watch.stream, task)


def _hint_subject(task: str) -> str:
    """Return the subject of a task's hints."""
    return task_hint_subject(task_key(task))
