"""The GET streams of sessions at this edge. They follow what their sessions subscribe to, and end with them."""

# Longer than 400 lines: the life of a stream, what it hears of its session, and what it tells the session.

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders
from mcpfleet.bus.header import BUSY
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import (
    EDGE_DIGITS,
    MOST_CHANGES,
    WATCH,
    Session,
    SessionChanged,
    SessionRead,
    WatchAgain,
    WatchedAgain,
)
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.sessions.event_stream import LISTS, UPDATES, SessionStream
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.lease import StreamLease, StreamLeases
from mcpfleet.edge.streams.listen import ListenStreams
from mcpfleet.edge.streams.stream import Exit
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.wire.errors import NotAnswered, Rejection, UnknownSession, wrong_http_method
from mcpfleet.wire.filter import Filter, ListKind

_CLOSE_TIMEOUT: Final = 2.0
"""Seconds to remove an ended stream from its session."""
_READS_AT_ONCE: Final = 16
"""Sessions that are read at once."""
_REQUESTS_AT_ONCE: Final = 256
"""Requests of other edges that wait for a session to be read."""
_WITHOUT_STREAM: Final = "POST, DELETE"
"""The methods that are left to a caller who may have no stream; official clients then go on without one."""


@dataclass(slots=True, eq=False)
class _LocalStreams:
    """A session's streams at this edge."""

    streams: list[SessionStream] = field(default_factory=list)
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    """Orders reads of the session, so that an older read is applied first."""

    def end(self) -> None:
        """End the streams, since the session has ended."""
        for stream in self.streams:
            stream.end(Exit.SESSION_ENDED)


class SessionStreams:
    """Serves GET streams."""

    def __init__(  # noqa: PLR0917  # the bus, and the parts of streams and sessions
        self,
        bus: Bus,
        sessions: SessionCache,
        listen: ListenStreams,
        hub: Hub,
        leases: StreamLeases,
        settings: EdgeSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._sessions = sessions
        self._listen = listen
        self._hub = hub
        self._leases = leases
        self._settings = settings
        self._log = log
        self._local: dict[str, _LocalStreams] = {}
        self._places = anyio.Semaphore(_READS_AT_ONCE)
        self._stale: dict[str, bool] = {}
        """The sessions to read again, and whether to check as well that their newest streams exist."""
        self._has_stale = AutoResetEvent()
        self._reporting: set[str] = set()
        """The sessions that are about to be told what was written."""
        self._requests = 0
        """Requests of other edges that wait."""
        self._tasks: TaskGroup | None = None
        sessions.on_change(self._on_change)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the changes of sessions, until cancelled."""
        await self._bus.subscribe(WATCH.subject_for(edge=self._bus.process), self._on_watch, asked_by=WATCH.replies)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._check)
            task_status.started()
            try:
                await self._follow(tasks)
            finally:
                self._tasks = None

    # -- a stream's life ----------------------------------------------------------------------------------------------

    async def serve(self, exchange: Exchange, ref: SessionRef) -> None:
        """Serve a stream to its end.

        Raises:
            Rejection: 503 where the edge has no capacity, 404 where the session has ended, 504 where that is unknown,
                or where the operator's policy gives no answer. 405 where it allows the caller no stream (X58).
            ClientStalled: the client does not read.
        """
        if self._hub.is_draining:
            await exchange.end_early()
            return
        lists = _lists_of(exchange)
        judged = await self._leases.judge(exchange, "stream", _families(exchange, lists))
        if judged is not None and not judged.allowed:
            raise wrong_http_method(_WITHOUT_STREAM)
        stream = self._stream(exchange, ref, lists if judged is None else lists & judged.allowed.lists)
        exchange.forget()
        local = self._local.setdefault(ref.key, _LocalStreams())
        local.streams.append(stream)
        try:
            await self._listen.serve(
                stream,
                exchange.credential,
                before=partial(self._open, local, stream),
                after=partial(self._close, local, stream),
                judged=judged,
            )
        finally:
            local.streams.remove(stream)
            if not local.streams and self._local.get(ref.key) is local:
                del self._local[ref.key]

    async def _open(self, local: _LocalStreams, stream: SessionStream) -> None:
        """Make a stream the session's newest. It has its place already, so a refused stream replaces no other.

        The former stream first says what it has written, and leaves the rest: so no change is told twice (L13).
        """
        async with local.turn:
            # It hears of changes before anybody else stops to do so.
            before = await self._sessions.read(stream.ref.key, stream.ref.owner)
            if not await self._watch_uris(stream, before.session.uris):
                raise self._hub.refusal("bus")
            try:
                read = await self._sessions.change(stream.ref, opened=stream.name)
            except NotAnswered:
                # The session may list it as the newest, which would mute the other stream.
                stream.is_listed = True
                raise
            stream.is_listed = True
            assert read.session is not None
            if not await self._watch_uris(stream, read.session.uris):
                raise self._hub.refusal("bus")
            formers = read.session.streams[1:]
            if not formers:
                self._catch_up(stream, read.session)
                return
        for former in formers:
            if not await self._notify_edge(former, stream.ref.key):
                await self._sessions.change(stream.ref, lost=former)
        async with local.turn:
            # Another turn may have taken what was marked since: an older read would undo that.
            newest = await self._sessions.read(stream.ref.key, stream.ref.owner)
            self._catch_up(stream, newest.session)

    async def _close(self, local: _LocalStreams, stream: SessionStream) -> None:
        """Remove a stream from its session, whose other stream then sends changes. A refusal ends the session (L12).

        It leaves unwritten changes to the next stream. It hears of changes until another stream does.
        """
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            try:
                async with local.turn:
                    if stream.was_denied:
                        await self._sessions.end(stream.ref)
                        return
                    if not stream.is_listed:
                        return
                    read = await self._tell(stream, [*stream.take_left(), *self._waiting(stream)], closed=stream.name)
                assert read.session is not None
                for newest in read.session.streams[:1]:
                    await self._notify_edge(newest, stream.ref.key)
                if late := stream.take_left():
                    await self._sessions.change(stream.ref, dirty=tuple(late)[:MOST_CHANGES])
            except Rejection as rejection:
                self._log.debug("ended stream not removed from session", status=rejection.status)

    def _waiting(self, stream: SessionStream) -> list[str]:
        return [] if stream.is_muted else self._hub.waiting(stream)

    async def _tell(self, stream: SessionStream, dirty: Sequence[str] = (), **changes: Any) -> SessionRead:
        """Tell a session what a stream has written, and what it has not."""
        news = stream.news()
        read = await self._sessions.change(
            stream.ref,
            by=stream.name,
            written=news.written,
            lists=news.lists or None,
            dirty=tuple(dict.fromkeys(dirty))[:MOST_CHANGES],
            **changes,
        )
        stream.reported(news)
        return read

    def _report_soon(self, key: str) -> None:
        if key not in self._reporting and self._tasks is not None:
            self._reporting.add(key)
            self._tasks.start_soon(self._report, key)

    async def _report(self, key: str) -> None:
        """Tell a session what its streams here have written, once sockets have it."""
        await anyio.lowlevel.checkpoint()
        self._reporting.discard(key)
        local = self._local.get(key)
        for stream in list(local.streams) if local is not None else ():
            assert local is not None
            async with local.turn:
                if not any(stream.news()) or not stream.is_listed or stream.is_over:
                    continue
                try:
                    read = await self._tell(stream)
                except Rejection as rejection:
                    self._log.debug("written changes not told to session", status=rejection.status)
                else:
                    if read.session is not None and not stream.is_muted:
                        stream.take_lists(read.session)

    def _stream(self, exchange: Exchange, ref: SessionRef, lists: frozenset[ListKind]) -> SessionStream:
        stream = SessionStream(
            self._bus.process + secrets.token_hex(8),
            ref,
            exchange,
            lease=StreamLease(exchange.caller),
            honoured=Filter(lists),
            bounds=self._listen.bounds(),
        )
        stream.on_news = partial(self._report_soon, ref.key)
        stream.policy = self._leases.newest_policy
        stream.on_lapse = partial(self._read_soon, ref.key)
        return stream

    async def _watch_uris(self, stream: SessionStream, uris: tuple[str, ...]) -> bool:
        """Have a stream watch these URIs, if it may; return False where the subscriptions are not confirmed."""
        if not stream.hears_updates:
            stream.give_up(uris)
            uris = ()
        stream.bound = self._settings.stream_pending + len(uris)
        try:
            await self._hub.change_uris(stream, uris)
        except BusError as error:
            self._log.debug("session subscriptions not confirmed", error=str(error))
            return False
        return True

    def _catch_up(self, stream: SessionStream, session: Session) -> None:
        """Queue what has changed without being told: lists that differ, and the URIs that are marked (X59).

        A service of the former release marks none, so each URI may have changed.
        """
        stream.take_lists(session)
        marked = stream.take_grants(session)
        if stream.hears_updates:
            for uri in marked if session.grants or not session.uris else session.uris:
                self._hub.catch_up(stream, uri)

    # -- changes of sessions ------------------------------------------------------------------------------------------

    async def watch(self, key: str, session: Session) -> None:
        """Have the session's newest stream, on any edge, watch what the session subscribes to now."""
        for newest in session.streams[:1]:
            await self._notify_edge(newest, key)

    async def _notify_edge(self, stream: str, key: str) -> bool:
        """Have a stream's edge read its session at once; otherwise it does so at a hint or at its next check.

        Returns:
            Whether the edge lives, as far as is known.
        """
        edge = stream[:EDGE_DIGITS]
        if edge == self._bus.process:
            await self._read(key)
            return True
        try:
            await self._sessions.client.watch(edge, key)
        except NoResponders:
            return False
        except BusError as error:
            self._log.debug("edge of session stream not notified", edge=edge, error=str(error))
        return True

    def _on_watch(self, message: Incoming) -> None:
        try:
            key = WatchAgain.model_validate_json(message.body).session
        except ValidationError:
            self._log.warning("malformed question", subject=message.subject)
            return
        if self._requests >= _REQUESTS_AT_ONCE or self._tasks is None:
            self._bus.respond(message, b"", BUSY)
            return
        self._requests += 1
        self._tasks.start_soon(self._watch_again, key, message)

    async def _watch_again(self, key: str, message: Incoming) -> None:
        try:
            await self._places.acquire()
            await self._read_and_free(key)
        finally:
            self._requests -= 1
        local = self._local.get(key)
        streams = () if local is None else tuple(stream.name for stream in local.streams)
        self._bus.respond(message, WatchedAgain(streams=streams).model_dump_json().encode())

    def _on_change(self, changed: SessionChanged) -> None:
        local = self._local.get(changed.session)
        if local is None:
            return
        if changed.ended:
            local.end()
        else:
            self._read_soon(changed.session)

    def _read_soon(self, key: str, *, checks: bool = False) -> None:
        self._stale[key] = self._stale.get(key, False) or checks
        self._has_stale.set()

    async def _follow(self, tasks: TaskGroup) -> None:
        """Read each session that has changed."""
        while True:
            await self._has_stale.wait()
            while self._stale:
                await self._places.acquire()
                key = next(iter(self._stale))
                tasks.start_soon(self._read_and_free, key, self._stale.pop(key))

    async def _read_and_free(self, key: str, checks: bool = False) -> None:
        ref: SessionRef | None = None
        try:
            ref = await self._read(key)
        except Exception:
            self._log.exception("session not followed")
        finally:
            self._places.release()
        if ref is not None and checks:
            await self._unmute(ref)

    async def _check(self) -> None:
        """Check each session from time to time: a stream keeps its session alive, and hints may be lost."""
        while True:
            keys = list(self._local)
            pause = self._settings.session_checked / max(1, len(keys))
            for key in keys or [""]:
                await anyio.sleep(pause)
                if key in self._local:
                    self._read_soon(key, checks=True)

    async def _read(self, key: str) -> SessionRef | None:
        """Read a session, and apply it to its streams here; return it, or None where it has none here."""
        local = self._local.get(key)
        if local is None:
            return None
        async with local.turn:
            if not local.streams:
                return None
            try:
                ref = await self._sessions.read(key, local.streams[0].ref.owner)
            except UnknownSession:
                local.end()
                return None
            except NotAnswered:
                return None
            for stream in list(local.streams):
                if stream.is_listed and stream in local.streams:  # it may have ended meanwhile
                    await self._apply(stream, ref.session)
        return ref

    async def _unmute(self, ref: SessionRef) -> None:
        """Let a muted stream here send changes, where the newest one is gone because its edge has died."""
        local, [newest, *others] = self._local.get(ref.key), ref.session.streams or ("",)
        if (
            local is None
            or not any(stream.name in others for stream in local.streams)
            or await self._exists(newest, ref.key)
        ):
            return
        try:
            await self._sessions.change(ref, lost=newest)
        except Rejection as rejection:
            self._log.debug("ended stream not removed from session", status=rejection.status)

    async def _exists(self, stream: str, key: str) -> bool:
        """Return whether a stream still exists; True where its edge cannot be asked."""
        edge = stream[:EDGE_DIGITS]
        if edge == self._bus.process:
            local = self._local.get(key)
            return local is not None and any(each.name == stream for each in local.streams)
        try:
            return stream in await self._sessions.client.watch(edge, key)
        except NoResponders:
            return False
        except BusError as error:
            self._log.debug("session stream not checked", edge=edge, error=str(error))
            return True

    async def _apply(self, stream: SessionStream, session: Session) -> None:
        if stream.name not in session.streams:
            stream.end(Exit.REPLACED)
            return
        is_newest = session.streams[0] == stream.name
        waiting = [] if is_newest else self._waiting(stream)
        if is_newest:
            stream.is_muted = False
        elif not stream.is_muted:
            stream.mute()
        await self._watch_uris(stream, session.uris if is_newest else ())
        if is_newest:
            self._catch_up(stream, session)
        elif (left := [*stream.take_left(), *waiting]) or any(stream.news()):
            try:
                await self._tell(stream, left)
            except Rejection as rejection:
                self._log.debug("changes not left to the session", status=rejection.status)


def _lists_of(exchange: Exchange) -> frozenset[ListKind]:
    """Return the kinds of lists whose changes a caller's view has."""
    capabilities = exchange.view.capabilities
    return frozenset(kind for kind in LISTS if capabilities.get(kind, {}).get("listChanged"))


def _families(exchange: Exchange, lists: frozenset[ListKind]) -> Filter:
    """Return what the operator's policy is asked about: the families of a GET stream, in the place of lists."""
    updates = {UPDATES} if exchange.view.capabilities.get("resources", {}).get("subscribe") else ()
    return Filter(lists.union(updates))  # type: ignore[arg-type]  # the policy knows families, and no kinds of lists
