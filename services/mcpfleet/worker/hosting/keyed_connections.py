"""The connections to one source that not all callers share: each belongs to one key, or to one call (B15, B17)."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.manifest import canonical, digest_of
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.sources.source import Source
from mcpfleet.worker.hosting.connection import SourceConnection, running
from mcpfleet.worker.hosting.link import SourceFailed
from mcpfleet.worker.hosting.places import Places
from mcpfleet.worker.upstream import NotSent

_ENDS: Final = 5
_WINDOW: Final = 60.0
"""A source, or a key, whose connection ends so often in so many seconds is paused (B18)."""
_LONGEST_PAUSE: Final = 60.0
_SPARED: Final = 30.0
"""Seconds for which an unused connection does not end for another one."""
_MOST_ENDS: Final = 1_000
"""Keys whose ends are remembered."""


def _pause_after(failures: int) -> float:
    """Return the seconds of the pause after so many failures in a row, from one on."""
    return min(2.0 ** (failures - 1), _LONGEST_PAUSE)


def key_of(source: str, principal: Principal) -> str | None:
    """Return the key of a caller's connection; None for a caller without a name, who gets one for each call."""
    name = (principal.tenant, principal.client, principal.subject)
    return None if name == (None, None, None) else digest_of(canonical((source, *name)))


@dataclass(eq=False, slots=True)
class _Held:
    """A connection that starts, serves or ends."""

    key: str | None
    """None for one call's own."""
    connection: SourceConnection
    uses: int = 1
    """Calls that run on it, or wait for its start."""
    unused_since: float = 0.0
    failure: SourceFailed | None = None
    has_left: bool = False
    """No other call gets it: it ends, or has ended."""
    has_tried: anyio.Event = field(default_factory=anyio.Event)
    """It serves, or could not be made."""
    changed: AutoResetEvent = field(default_factory=AutoResetEvent)
    watches_others: AutoResetEvent = field(default_factory=AutoResetEvent)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_over: anyio.Event = field(default_factory=anyio.Event)
    """Its child has ended, too."""

    @property
    def is_lost(self) -> bool:
        """Whether it served, and takes no call any more."""
        return self.connection.has_started and self.connection.is_over


class Ends:
    """The newest ends of a source's connections, or of one key's, and the pauses that they bring (B18)."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=_ENDS)
        self.paused_until = 0.0
        self._pauses = 0

    def note(self, *, has_failed: bool = False) -> float:
        """Note an end now; returns the seconds of the pause that it brings, 0 for none.

        Args:
            has_failed: the connection never served, so that its end brings a pause by itself.
        """
        now = time.monotonic()
        self.times.append(now)
        is_often = len(self.times) == _ENDS and now - self.times[0] < _WINDOW
        self._pauses = self._pauses + 1 if is_often or has_failed else 0
        pause = _pause_after(self._pauses) if self._pauses else 0.0
        if pause:
            self.paused_until = now + pause
        return pause


class KeyedConnections:
    """Connections by key, within the bound of their source. All of it is for the handlers' loop."""

    def __init__(
        self,
        source: Source,
        connect: Callable[[], SourceConnection],
        *,
        places: Places | None = None,
        log: FilteringBoundLogger,
        on_update: Callable[[str], None],
    ) -> None:
        """Connect nothing yet.

        Args:
            source: its configuration: the bound, and the idle time.
            connect: makes a connection that is not run yet.
            places: the places of this worker; None where no other worker serves the source.
            log: gets why one could not be made, or has ended.
            on_update: hears that a resource may have changed while nobody watched it.
        """
        self._source = source
        self._connect = connect
        self._places = places
        self._users: Counter[str] = Counter()
        """Calls of each key that are here."""
        if places is not None:
            places.on_lost.append(self._lose)
        self._log = log
        self._on_update = on_update
        self._held: set[_Held] = set()
        """All whose children may run."""
        self._by_key: dict[str, _Held] = {}
        self._ends: OrderedDict[str, Ends] = OrderedDict()
        self._failures = 0
        """Starts in a row that have failed."""
        self._paused_until = 0.0
        self._watched: frozenset[str] = frozenset()
        self._is_full = False
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Run the connections until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def watch(self, uris: frozenset[str]) -> None:
        """Watch these resources on each key's connection, and on those to come."""
        self._watched = uris
        for held in self._by_key.values():
            held.watches_others.set()

    @asynccontextmanager
    async def use(self, key: str | None, *, may_start: bool = True) -> AsyncIterator[SourceConnection]:
        """Use the connection of a key for one call; without a key, one that is for this call alone.

        Args:
            key: names the callers that share the connection.
            may_start: a new one may be made.

        Raises:
            NotSent: none can be made now, or there are as many as may be.
            HeldElsewhere: another worker has the key's connection.
        """
        if key is None or self._places is None:
            async with self._use(key, may_start=may_start) as connection:
                yield connection
            return
        self._users[key] += 1
        try:
            await self._places.hold(key)
            async with self._use(key, may_start=may_start) as connection:
                yield connection
        finally:
            self._users[key] -= 1
            self._free(key)

    @asynccontextmanager
    async def _use(self, key: str | None, *, may_start: bool) -> AsyncIterator[SourceConnection]:
        held = await self._take(key, may_start=may_start)
        try:
            await held.has_tried.wait()
            if held.failure is not None or not held.connection.has_started:
                raise NotSent from held.failure
            yield held.connection
        finally:
            self._give_back(held)

    def _free(self, key: str) -> None:
        """Let other workers have the connection of a key that has none here, and no call."""
        if not self._users[key]:
            del self._users[key]
            if self._places is not None and not any(each.key == key for each in self._held):
                self._places.free(key)

    def _lose(self) -> None:
        """End all connections by key: another worker may make theirs."""
        for held in list(self._by_key.values()):
            self._leave(held)
            held.scope.cancel()

    async def _take(self, key: str | None, *, may_start: bool) -> _Held:
        while True:
            if key is not None and (held := self._by_key.get(key)) is not None:
                if not held.is_lost:
                    held.uses += 1
                    return held
                self._leave(held)
            if not may_start or self._tasks is None or self._is_paused(key):
                raise NotSent
            if len(self._held) < self._source.children:
                self._is_full = False
                return self._start(self._tasks, key)
            ending = self._ending()
            if ending is None:
                self._tell_full()
                raise NotSent
            await ending.is_over.wait()

    def _start(self, tasks: TaskGroup, key: str | None) -> _Held:
        held = _Held(key, self._connect())
        self._held.add(held)
        if key is not None:
            self._by_key[key] = held
            held.connection.label = held.connection.name
        tasks.start_soon(self._run, held)
        return held

    def _give_back(self, held: _Held) -> None:
        held.uses -= 1
        held.unused_since = time.monotonic()
        held.changed.set()
        if held.key is None:
            self._leave(held)
            if not held.has_tried.is_set():
                held.scope.cancel()  # nobody waits for its start any more

    def _ending(self) -> _Held | None:
        """Return one that ends already, or the longest unused one, which ends now; None if each must stay."""
        for held in self._held:
            if held.has_left:
                return held
        idle = [each for each in self._held if not each.uses]
        longest = min(idle, key=lambda each: each.unused_since, default=None)
        if longest is None or time.monotonic() - longest.unused_since < _SPARED:
            return None
        self._leave(longest)
        longest.scope.cancel()
        return longest

    def _tell_full(self) -> None:
        if not self._is_full:  # once until there is room again: each call may come here
            self._is_full = True
            self._log.warning("source has all its connections", children=self._source.children)

    # -- the life of one ----------------------------------------------------------------------------------------------

    async def _run(self, held: _Held) -> None:
        try:
            with held.scope:
                async with running(held.connection):
                    self._failures = 0
                    held.has_tried.set()
                    await self._follow(held)
        except SourceFailed as failure:
            if held.has_tried.is_set():
                self._log.warning("connection ended", why=self._source.masked(str(failure)))
            else:
                self._fail(held, failure)
        finally:
            self._leave(held)
            self._held.discard(held)
            held.has_tried.set()
            held.is_over.set()
            if held.key is not None:
                self._free(held.key)

    def _fail(self, held: _Held, failure: SourceFailed) -> None:
        """Pause the starts of all keys: one failed, and the next would too."""
        held.failure = failure
        self._failures += 1
        self._paused_until = time.monotonic() + _pause_after(self._failures)
        self._log.warning("source not connected", why=self._source.masked(str(failure)))

    async def _follow(self, held: _Held) -> None:
        """Serve until it has ended, or was unused for its time."""

        async def hear_end() -> None:
            await held.connection.ended()
            held.changed.set()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hear_end)
                if held.key is not None:
                    tasks.start_soon(self._keep_watch, held)
                while not held.connection.is_over and (left := self._left(held)) > 0:
                    await held.changed.wait(left)
                tasks.cancel_scope.cancel()
        finally:
            self._leave(held)  # its child may take seconds to end
        if held.connection.is_over:
            await held.connection.drained()
        if held.key is not None and held.connection.is_over:
            self._log.warning("connection ended", why=self._source.masked(await held.connection.why_over()))

    def _left(self, held: _Held) -> float:
        """Return the seconds for which it may be unused from now on."""
        idle = 0.0 if held.key is None else self._source.idle
        return float("inf") if held.uses else held.unused_since + idle - time.monotonic()

    async def _keep_watch(self, held: _Held) -> None:
        """Watch what clients watch. A key whose connection was lost has another state: its watchers read again."""
        missed = self._watched if held.key in self._ends else frozenset()
        await held.connection.keep_watch(lambda: self._watched, held.watches_others, missed, self._on_update)

    def _leave(self, held: _Held) -> None:
        """Give it to no other call. Note an end that came by itself."""
        if held.has_left:
            return
        held.has_left = True
        if held.key is not None:
            if self._by_key.get(held.key) is held:
                del self._by_key[held.key]
            if held.is_lost:
                self._note_end(held.key)

    # -- pauses -------------------------------------------------------------------------------------------------------

    def _is_paused(self, key: str | None) -> bool:
        now = time.monotonic()
        ends = self._ends.get(key) if key is not None else None
        return now < self._paused_until or (ends is not None and now < ends.paused_until)

    def _note_end(self, key: str) -> None:
        self._ends.setdefault(key, Ends()).note()
        self._ends.move_to_end(key)
        kept_from = time.monotonic() - _WINDOW - _LONGEST_PAUSE
        while len(self._ends) > _MOST_ENDS or next(iter(self._ends.values())).times[-1] < kept_from:
            self._ends.popitem(last=False)
