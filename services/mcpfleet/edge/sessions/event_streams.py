"""The GET streams of sessions at this edge: opened, kept to what their sessions subscribe to, and ended with them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders
from mcpfleet.bus.header import BUSY
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import EDGE_DIGITS, WATCH, Session, SessionChanged, WatchAgain, WatchedAgain
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.sessions.event_stream import LISTS, SessionStream
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.lease import Unending
from mcpfleet.edge.streams.listen import Listens
from mcpfleet.edge.streams.stream import Exit
from mcpfleet.wire.errors import NotAnswered, Rejection, UnknownSession
from mcpfleet.wire.filter import Filter

_FLUSHED_WITHIN: Final = 2.0
_CLOSED_WITHIN: Final = 2.0
_LOOKS_AT_ONCE: Final = 16
_ASKED_AT_ONCE: Final = 256
"""Questions of other edges that wait for a look."""


@dataclass(slots=True, eq=False)
class _Here:
    """A session's streams at this edge."""

    streams: list[SessionStream] = field(default_factory=list)
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    """What is read of a session first is applied first."""

    def end(self) -> None:
        """End them: the session is over."""
        for stream in self.streams:
            stream.end(Exit.SESSION_ENDED)


class SessionStreams:
    """Serves GET streams."""

    def __init__(
        self,
        bus: Bus,
        sessions: SessionCache,
        listens: Listens,
        hub: Hub,
        settings: EdgeSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._sessions = sessions
        self._listens = listens
        self._hub = hub
        self._settings = settings
        self._log = log
        self._here: dict[str, _Here] = {}
        self._places = anyio.Semaphore(_LOOKS_AT_ONCE)
        self._old: dict[str, bool] = {}
        """The sessions to read again, and whether their newest streams are looked for as well."""
        self._has_old = anyio.Event()
        self._asked = 0
        self._tasks: TaskGroup | None = None
        sessions.on_change(self._on_change)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow what becomes of sessions, until cancelled."""
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

    async def serve(self, exchange: Exchange, named: SessionRef) -> None:
        """Serve a stream to its end.

        Raises:
            Rejection: 503 where there is no room, 404 where the session has ended, 504 where nobody can say.
            ClientStalled: the client does not read.
        """
        if self._hub.is_draining:
            await exchange.end_early()
            return
        stream = self._stream(exchange, named)
        exchange.forget()
        here = self._here.setdefault(named.key, _Here())
        here.streams.append(stream)
        try:
            await self._listens.serve(stream, exchange.credential, before=partial(self._open, here, stream))
        finally:
            here.streams.remove(stream)
            if not here.streams and self._here.get(named.key) is here:
                del self._here[named.key]
            with anyio.move_on_after(_CLOSED_WITHIN, shield=True):
                await self._close(stream)

    async def _open(self, here: _Here, stream: SessionStream) -> None:
        """Make a stream that has its place the session's newest: one that finds none costs no other its own."""
        async with here.turn:
            try:
                read = await self._sessions.change(stream.named, opened=stream.name)
            except NotAnswered:
                # It may be the newest, and would keep the session's other stream silent.
                stream.is_known = True
                raise
            stream.is_known = True
            assert read.session is not None
            if not await self._hear(stream, read.session.uris):
                raise self._hub.refusal("bus")
            self._catch_up(stream, read.session)
        for former in read.session.streams[1:]:
            await self._tell_edge_of(former, stream.named.key)

    async def _close(self, stream: SessionStream) -> None:
        """Let the session's other stream tell what changes; a client that is denied has lost its session (L12)."""
        try:
            if stream.was_denied:
                await self._sessions.end(stream.named)
            elif stream.is_known:
                lists = None if stream.is_muted else dict(stream.known)
                await self._sessions.change(stream.named, closed=stream.name, lists=lists)
        except Rejection as rejection:
            self._log.debug("a session's stream was not taken out", status=rejection.status)

    def _stream(self, exchange: Exchange, named: SessionRef) -> SessionStream:
        view = exchange.view
        lists = frozenset(kind for kind in LISTS if view.capabilities.get(kind, {}).get("listChanged"))
        return SessionStream(
            self._bus.process + secrets.token_hex(8),
            named,
            exchange,
            b"",
            endpoint=exchange.endpoint,
            permission=Unending(exchange.caller),
            honoured=Filter(lists),
            view=view,
            **self._listens.terms(),
        )

    async def _hear(self, stream: SessionStream, uris: tuple[str, ...]) -> bool:
        """Hear the hints of these URIs for a stream, and be sure of it; false where that is not so."""
        stream.bound = self._settings.stream_pending + len(uris)
        try:
            await self._hub.watch_others(stream, uris)
            await self._bus.flush(timeout=_FLUSHED_WITHIN)
        except BusError as error:
            self._log.debug("not all is heard that a session subscribes to", error=str(error))
            return False
        return True

    def _catch_up(self, stream: SessionStream, session: Session) -> None:
        """Tell what may have changed while no stream told it: lists that differ, and each URI, which has no number."""
        stream.go_on_from(session)
        for uri in stream.honoured.uris:
            self._hub.catch_up(stream, uri)

    # -- what becomes of sessions -------------------------------------------------------------------------------------

    async def watch(self, key: str, session: Session) -> None:
        """Have the session's newest stream, on whichever edge, tell of what the session subscribes to now."""
        for newest in session.streams[:1]:
            await self._tell_edge_of(newest, key)

    async def _tell_edge_of(self, stream: str, key: str) -> None:
        """Have the edge of a stream look at its session at once; else it does by the hint, or in its time."""
        edge = stream[:EDGE_DIGITS]
        if edge == self._bus.process:
            await self._look(key)
            return
        try:
            await self._sessions.client.watch(edge, key)
        except BusError as error:
            self._log.debug("a session's stream was not told", edge=edge, error=str(error))

    def _on_watch(self, message: Incoming) -> None:
        try:
            key = WatchAgain.model_validate_json(message.body).session
        except ValidationError:
            self._log.warning("malformed question", subject=message.subject)
            return
        if self._asked >= _ASKED_AT_ONCE or self._tasks is None:
            self._bus.respond(message, b"", BUSY)
            return
        self._asked += 1
        self._tasks.start_soon(self._watch_again, key, message)

    async def _watch_again(self, key: str, message: Incoming) -> None:
        try:
            await self._places.acquire()
            await self._look_in_turn(key)
        finally:
            self._asked -= 1
        here = self._here.get(key)
        streams = () if here is None else tuple(stream.name for stream in here.streams)
        self._bus.respond(message, WatchedAgain(streams=streams).model_dump_json().encode())

    def _on_change(self, changed: SessionChanged) -> None:
        here = self._here.get(changed.session)
        if here is None:
            return
        if changed.ended:
            here.end()
        else:
            self._look_soon(changed.session)

    def _look_soon(self, key: str, *, checks: bool = False) -> None:
        self._old[key] = self._old.get(key, False) or checks
        self._has_old.set()

    async def _follow(self, tasks: TaskGroup) -> None:
        """Look at each session that has changed."""
        while True:
            await self._has_old.wait()
            self._has_old = anyio.Event()
            while self._old:
                await self._places.acquire()
                key = next(iter(self._old))
                tasks.start_soon(self._look_in_turn, key, self._old.pop(key))

    async def _look_in_turn(self, key: str, checks: bool = False) -> None:
        named: SessionRef | None = None
        try:
            named = await self._look(key)
        except Exception:
            self._log.exception("a session was not followed")
        finally:
            self._places.release()
        if named is not None and checks:
            await self._relieve(named)

    async def _check(self) -> None:
        """Look at each session now and then: it lives while it has a stream, and hints may be lost."""
        while True:
            keys = list(self._here)
            pause = self._settings.session_checked / max(1, len(keys))
            for key in keys or [""]:
                await anyio.sleep(pause)
                if key in self._here:
                    self._look_soon(key, checks=True)

    async def _look(self, key: str) -> SessionRef | None:
        """Read a session, and have its streams here do as it says; returns it, where there are such."""
        here = self._here.get(key)
        if here is None:
            return None
        async with here.turn:
            if not here.streams:
                return None
            try:
                named = await self._sessions.read(key, here.streams[0].named.owner)
            except UnknownSession:
                here.end()
                return None
            except NotAnswered:
                return None
            for stream in list(here.streams):
                if stream.is_known and stream in here.streams:  # it may have ended meanwhile
                    await self._apply(stream, named.session)
        return named

    async def _relieve(self, named: SessionRef) -> None:
        """Let a silent stream here tell what changes, where the newest has gone without a word: its edge has died."""
        here, [newest, *others] = self._here.get(named.key), named.session.streams or ("",)
        if (
            here is None
            or not any(stream.name in others for stream in here.streams)
            or await self._is_there(newest, named.key)
        ):
            return
        try:
            await self._sessions.change(named, closed=newest)
        except Rejection as rejection:
            self._log.debug("a session's stream was not taken out", status=rejection.status)

    async def _is_there(self, stream: str, key: str) -> bool:
        """Whether a stream is still there, as far as its edge can be asked."""
        edge = stream[:EDGE_DIGITS]
        if edge == self._bus.process:
            here = self._here.get(key)
            return here is not None and any(each.name == stream for each in here.streams)
        try:
            return stream in await self._sessions.client.watch(edge, key)
        except NoResponders:
            return False
        except BusError as error:
            self._log.debug("a session's stream was not told", edge=edge, error=str(error))
            return True

    async def _apply(self, stream: SessionStream, session: Session) -> None:
        if stream.name not in session.streams:
            stream.end(Exit.REPLACED)
            return
        is_newest = session.streams[0] == stream.name
        takes_over, stream.is_muted = is_newest and stream.is_muted, not is_newest
        await self._hear(stream, session.uris if is_newest else ())
        if takes_over:
            self._catch_up(stream, session)
