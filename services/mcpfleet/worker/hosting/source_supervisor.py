"""Keeps one source running: its connections, its newest listing, and its pauses when it ends too often."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.app.context import Context
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.sources.source import Command, Object, Source, Url
from mcpfleet.wire.uri_template import UriTemplate
from mcpfleet.worker.hosting import object_server
from mcpfleet.worker.hosting.child import Reaping
from mcpfleet.worker.hosting.connection import SourceConnection, running
from mcpfleet.worker.hosting.handler import HostedHandler
from mcpfleet.worker.hosting.keyed_connections import Ends, KeyedConnections, key_of
from mcpfleet.worker.hosting.link import Listener, SourceFailed, SourceLink
from mcpfleet.worker.hosting.listing import SourceListing, list_source
from mcpfleet.worker.hosting.places import Places
from mcpfleet.worker.hosting.stdio_link import stdio_link
from mcpfleet.worker.upstream import NotSent, UpstreamError, UpstreamLost

if TYPE_CHECKING:
    from mcpfleet.worker.hosting.http_credentials import Tokens

SETTLES: Final = 0.25
"""Seconds without another change after which lists are read again (B23)."""
SETTLES_WITHIN: Final = 2.0
"""Seconds after the first change in which they are read in any case."""
_LISTED_FOR: Final = 15 * 60.0
"""Seconds for which the last list of a source that is away stays (B18)."""
_SHOWN: Final = 200
"""Characters that the log shows of a line that is no message."""
_LIST_AGAIN: Final = 5.0
"""Seconds after which a list that could not be read is read again."""


class _End(NamedTuple):
    """Why a connection has ended, and whether the source had been listed on it."""

    text: str
    was_listed: bool


class SourceSupervisor:
    """Keeps a source connected, and follows what it offers. All of it is for the handlers' loop."""

    def __init__(
        self,
        source: Source,
        reaping: Reaping,
        *,
        log: FilteringBoundLogger,
        tell_health: Callable[[bool, str], None],
        on_change: Callable[[], None],
        on_update: Callable[[str], None],
        places: Places | None = None,
    ) -> None:
        """Connect nothing yet.

        Args:
            source: its configuration.
            reaping: starts its children.
            log: gets what it says, and why it ends.
            tell_health: hears whether it is there, and why not.
            on_change: hears that it offers something else.
            on_update: hears that a resource has changed.
            places: the worker's places; None where no other worker serves the source.
        """
        self.source = source
        self.handlers: tuple[HostedHandler, ...] = ()
        """Its declarations now; replaced as a whole, since another thread reads it."""
        self.listing: SourceListing | None = None
        self._schemas: dict[str, Any] = {}
        self.has_tried = anyio.Event()
        """It was listed, or its first start has failed."""
        self._reaping = reaping
        self._log = log.bind(source=source.name)
        self._output = logging.getLogger(f"source.{source.name}")
        self._tell_health = tell_health
        self._on_change = on_change
        self._on_update = on_update
        self._watched_by_clients: frozenset[str] = frozenset()
        """The resources that clients watch, of all sources."""
        self._watched: frozenset[str] = frozenset()
        """Those of them that it has."""
        self._watches_others = AutoResetEvent()
        self._era = source.era
        self._home: SourceConnection | None = None
        """The connection that lists, and that carries the calls of a shared source."""
        self._is_there = anyio.Event()
        self._is_paused = False
        self._changed = AutoResetEvent()
        self._keyed = KeyedConnections(
            source, lambda: self._connection(_Unlisted(self)), places=places, log=self._log, on_update=on_update
        )
        self._tokens: Tokens | None = None
        self._tasks: TaskGroup | None = None
        """Runs connections over HTTP, whose requests may go on beside the next one."""
        self._last_seen = time.monotonic()

    # -- its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the source connected until cancelled: connect, list, follow, and begin again when it has ended."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._keyed.run)
            await self._keep_connected()

    async def _keep_connected(self) -> None:
        ends = Ends()
        while True:
            why = await self._connect_once()
            pause = ends.note(has_failed=not why.was_listed)
            self._log.warning("source ended", why=why.text, listed=why.was_listed)
            self.has_tried.set()
            if pause:
                await self._pause(why.text, pause)

    async def _connect_once(self) -> _End:
        """Make one connection, and follow it to its end; return why it has ended."""
        was_listed = False
        try:
            async with self._connected() as connection:
                await self._list(connection)
                was_listed = True
                self._era = "2026" if connection.facts.is_modern else "2025"
                self._home, self._is_paused = connection, False
                self._is_there.set()
                self._tell_health(True, "")
                self.has_tried.set()
                try:
                    await self._follow(connection)
                finally:  # before its child has ended, which takes seconds: calls wait for the next one
                    self._home, self._is_there = None, anyio.Event()
            return _End(await connection.why_over(), was_listed=True)
        except SourceFailed as error:
            if error.is_era:
                self._era = "2025"
            elif error.is_refused:
                self._era = self.source.era
            return _End(self.source.masked(str(error)), was_listed=was_listed)
        except (UpstreamError, NotSent, UpstreamLost) as error:
            why = self.source.masked(str(error)) or "the connection ended"
            return _End(f"did not list what it offers: {why}", was_listed=was_listed)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[SourceConnection]:
        """Hold a connection for the length of a block; what runs on one over HTTP goes on beside the next one.

        Raises:
            SourceFailed: it cannot be made.
        """
        connection, is_left = self._connection(), anyio.Event()
        if not isinstance(self.source.way, Url):
            async with running(connection):
                yield connection
            return
        assert self._tasks is not None
        failure: SourceFailed | None = await self._tasks.start(self._run_until_drained, connection, is_left)
        if failure is not None:
            raise failure
        try:
            yield connection
        finally:
            is_left.set()

    async def _run_until_drained(
        self, connection: SourceConnection, is_left: anyio.Event, *, task_status: TaskStatus[SourceFailed | None]
    ) -> None:
        is_made = False
        try:
            async with running(connection):
                is_made = True
                task_status.started(None)
                await is_left.wait()
                await connection.drained()
        except SourceFailed as failure:
            if not is_made:
                task_status.started(failure)

    async def _pause(self, why: str, seconds: float) -> None:
        """Refuse calls for a while; drop the list of a source that has been away for long."""
        self._is_paused = True
        self._tell_health(False, why)
        self._is_there.set()  # those who wait for it are refused
        if self.handlers and time.monotonic() - self._last_seen > _LISTED_FOR:
            self.handlers = ()
            self._on_change()
        await anyio.sleep(seconds)
        self._is_there = anyio.Event()
        self._is_paused = False

    async def _follow(self, connection: SourceConnection) -> None:
        """Read the lists again when they change, until the connection ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._relist, connection)
            tasks.start_soon(self._keep_watch, connection)
            await connection.ended()
            tasks.cancel_scope.cancel()
        self._last_seen = time.monotonic()

    async def _relist(self, connection: SourceConnection) -> None:
        while True:
            await self._changed.wait()
            until = anyio.current_time() + SETTLES_WITHIN
            while await self._changed.wait(max(0.0, min(SETTLES, until - anyio.current_time()))):
                pass
            try:
                await self._list(connection)
            except (NotSent, UpstreamLost):
                return
            except (UpstreamError, SourceFailed) as error:
                self._log.warning("source not listed, former list stays", error=self.source.masked(str(error)))
                await anyio.sleep(_LIST_AGAIN)
                self._changed.set()

    def watch(self, uris: frozenset[str]) -> None:
        """Watch those of these resources that the source has."""
        self._watched_by_clients = uris
        own = frozenset(uri for uri in uris if self._has(uri))
        if own != self._watched:
            self._watched = own
            self._watches_others.set()
            self._keyed.watch(own)

    def _has(self, uri: str) -> bool:
        definitions = [each.definition for each in self.handlers]
        return any(each.kind == "resource" and each.name == uri for each in definitions) or any(
            each.kind == "template" and UriTemplate.parse(each.name).match(uri) is not None for each in definitions
        )

    async def _keep_watch(self, connection: SourceConnection) -> None:
        """Watch at the source what clients watch. Then report each URI once: a change may have been missed."""
        await connection.keep_watch(lambda: self._watched, self._watches_others, self._watched, self._on_update)

    async def _list(self, connection: SourceConnection) -> None:
        """Read all lists, and take them over if they differ."""
        with anyio.move_on_after(self.source.start_within) as patience:
            listing = await list_source(connection, self.source)
        if patience.cancelled_caught:
            raise SourceFailed(f"did not list what it offers within {self.source.start_within:g} s")
        former, self.listing = self.listing, listing
        if former != listing or not self.handlers:
            self.handlers = tuple(
                HostedHandler(each, self, checks=self.source.check) for each in listing.overlaid.offers
            )
            self._schemas = {
                each.declared: each.definition.wire.get("inputSchema")
                for each in listing.overlaid.offers
                if each.definition.kind == "tool"
            }
            self.watch(self._watched_by_clients)
            self._on_change()

    def input_schema(self, tool: str) -> Any:
        """Return the newest input schema of a tool, by the source's own name of it; None without one."""
        return self._schemas.get(tool)

    # -- calls --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def connection(self, ctx: Context) -> AsyncIterator[SourceConnection]:
        """Use a connection for one call.

        Raises:
            NotSent: there is none, and none can be made now.
            HeldElsewhere: another worker has the caller's.
        """
        if self._is_shared:
            yield await self._shared()
        else:
            key = None if self.source.shared_by == "call" else key_of(self.source.name, ctx.principal)
            async with self._keyed.use(key, may_start=not self._is_paused) as connection:
                yield connection

    @property
    def _is_shared(self) -> bool:
        """Whether all callers share the connection: over HTTP, one of 2026-07-28 has no state to mix."""
        has_no_state = isinstance(self.source.way, Url) and self._era == "2026"
        return self.source.shared_by == "shared" or (self.source.isolation is None and has_no_state)

    async def _shared(self) -> SourceConnection:
        while self._home is None or self._home.is_over:
            if self._is_paused:
                raise NotSent
            await self._is_there.wait()
        return self._home

    def _connection(self, listener: Listener | None = None) -> SourceConnection:
        return SourceConnection(self.source, self._open, listener or self, self._era)

    def _open(self) -> AbstractAsyncContextManager[SourceLink]:
        if isinstance(self.source.way, Url):
            return self._open_url(self.source.way)
        command = command_of(self.source)
        return stdio_link(self.source, command, self._reaping, on_noise=self._hear_noise, on_error=self._output.info)

    def _open_url(self, way: Url) -> AbstractAsyncContextManager[SourceLink]:
        # Sources that are processes need no HTTP.
        from mcpfleet.worker.hosting.http_credentials import tokens_of  # noqa: PLC0415
        from mcpfleet.worker.hosting.http_link import http_link  # noqa: PLC0415

        if self._tokens is None:  # all connections share it
            self._tokens = tokens_of(way)
        return http_link(self.source, way, self._tokens, on_gap=self._missed, on_noise=self._hear_noise)

    def _missed(self) -> None:
        """Take everything for changed, since a stream of changes was opened again."""
        self.lists_changed()
        for uri in self._watched:
            self._on_update(uri)

    # -- what it says by itself ---------------------------------------------------------------------------------------

    def lists_changed(self) -> None:
        """Read the lists again once no other change comes."""
        self._changed.set()

    def resource_updated(self, uri: str) -> None:
        """Tell those who watch a resource that it has changed."""
        self._on_update(uri)

    def logged(self, params: Mapping[str, Any]) -> None:
        """Log a message that belongs to no call that could be named."""
        level, data = params.get("level"), params.get("data")
        number = logging.WARNING if level in ("warning", "error", "critical", "alert", "emergency") else logging.INFO
        self._output.log(number, "%s", self.source.masked(str(data)))

    def _hear_noise(self, line: str) -> None:
        self._log.warning("source wrote no JSON-RPC", line=self.source.masked(line)[:_SHOWN])


class _Unlisted:
    """Hears a connection whose lists nobody reads: lists are the configuration's, and not a caller's."""

    def __init__(self, listener: Listener) -> None:
        self.resource_updated = listener.resource_updated
        self.logged = listener.logged

    def lists_changed(self) -> None:
        """Read nothing: the connection that lists tells its own changes."""


def command_of(source: Source) -> Command:
    """Return the command of a source: its own, or the one that serves its object in a child."""
    way = source.way
    if isinstance(way, Object):
        return Command(words=(way.python or sys.executable, object_server.__file__, way.target), env=way.env)
    assert isinstance(way, Command)
    return way
