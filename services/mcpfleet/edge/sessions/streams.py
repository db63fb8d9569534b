"""The GET streams of sessions at this edge: opened, kept to what their sessions subscribe to, and ended with them."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import EDGE_DIGITS, WATCH, Session, WatchAgain, WatchedAgain
from mcpfleet.edge.http.client import Client
from mcpfleet.edge.sessions.known import Named, Sessions
from mcpfleet.edge.sessions.stream import LISTS, SessionStream
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.listens import Listens
from mcpfleet.edge.streams.permission import Unending
from mcpfleet.edge.streams.stream import Exit
from mcpfleet.views.view import View
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.filter import Filter

_FLUSHED_WITHIN: Final = 2.0
_CLOSED_WITHIN: Final = 2.0
_UNKNOWN: Final = 504
_LOOKS_AT_ONCE: Final = 16
_JITTER: Final = 0.1


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
        sessions: Sessions,
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
        """Sessions that are to be read again, and whether it is to be asked if their newest streams are still there."""
        self._has_old = anyio.Event()
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

    async def serve(self, client: Client, endpoint: str, principal: Principal, view: View, named: Named) -> None:
        """Serve a stream to its end.

        Raises:
            Rejection: 503 where there is no room, 404 where the session has ended, 504 where nobody can say.
            ClientStalled: the client does not read.
        """
        if self._hub.is_draining:
            await client.end_early()
            return
        stream = self._stream(client, endpoint, principal, view, named)
        here = self._here.setdefault(named.key, _Here())
        here.streams.append(stream)
        try:
            session = await self._open(here, stream)
            stream.catch_up(session)
            await self._listens.serve(stream, client.credential)
        finally:
            here.streams.remove(stream)
            if not here.streams and self._here.get(named.key) is here:
                del self._here[named.key]
            with anyio.move_on_after(_CLOSED_WITHIN, shield=True):
                await self._close(stream)

    async def _open(self, here: _Here, stream: SessionStream) -> Session:
        """Make a stream the session's newest."""
        async with here.turn:
            try:
                read = await self._sessions.change(stream.named, opened=stream.name)
            except Rejection as rejection:
                # Where nobody could say whether it is, it may be, and would keep the session's other stream silent.
                stream.is_known = rejection.status == _UNKNOWN
                raise
            stream.is_known = True
            assert read.session is not None
            stream.honoured = Filter(stream.honoured.lists, self._uris(read.session))
            return read.session

    async def _close(self, stream: SessionStream) -> None:
        """Let the session's other stream tell what changes; a client that is denied has lost its session (L12)."""
        try:
            if stream.was_denied:
                await self._sessions.end(stream.named)
            elif stream.is_known:
                lists = None if stream.is_muted else dict(stream.known_lists)
                await self._sessions.change(stream.named, closed=stream.name, lists=lists)
        except Rejection as rejection:
            self._log.debug("a session's stream was not taken out", status=rejection.status)

    def _stream(self, client: Client, endpoint: str, principal: Principal, view: View, named: Named) -> SessionStream:
        settings = self._settings
        lists = frozenset(kind for kind in LISTS if view.capabilities.get(kind, {}).get("listChanged"))
        return SessionStream(
            self._bus.process + secrets.token_hex(8),
            named,
            client,
            b"",
            endpoint=endpoint,
            permission=Unending(principal),
            honoured=Filter(lists),
            view=view,
            keepalive=settings.keepalive,
            lasts=settings.stream_lasts * random.uniform(1 - _JITTER, 1),  # noqa: S311  # no secret
            bound=settings.stream_pending + settings.stream_keys,
        )

    def _uris(self, session: Session) -> tuple[str, ...]:
        return session.uris[: self._settings.stream_keys]

    # -- what becomes of sessions -------------------------------------------------------------------------------------

    async def watch(self, key: str, session: Session) -> None:
        """Have the session's newest stream, on whichever edge, tell of what the session subscribes to now."""
        if not session.streams:
            return
        edge = session.streams[0][:EDGE_DIGITS]
        if edge == self._bus.process:
            await self._look(key)
            return
        try:
            await self._sessions.client.watch(edge, key)
        except BusError as error:  # its edge may be gone, and the stream with it; else the hint does it
            self._log.debug("a session's stream was not told", edge=edge, error=str(error))

    def _on_watch(self, message: Incoming) -> None:
        try:
            key = WatchAgain.model_validate_json(message.body).session
        except ValidationError:
            self._log.warning("malformed question", subject=message.subject)
            return
        if self._tasks is not None:
            self._tasks.start_soon(self._watch_again, key, message)

    async def _watch_again(self, key: str, message: Incoming) -> None:
        await self._places.acquire()
        await self._look_in_turn(key)
        here = self._here.get(key)
        streams = () if here is None else tuple(stream.name for stream in here.streams)
        self._bus.respond(message, WatchedAgain(streams=streams).model_dump_json().encode())

    def _on_change(self, key: str, ended: bool) -> None:
        here = self._here.get(key)
        if here is None:
            return
        if ended:
            here.end()
        else:
            self._look_soon(key)

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
        try:
            named = await self._look(key)
            if named is not None and checks:
                await self._relieve(named)
        except Exception:
            self._log.exception("a session was not followed")
        finally:
            self._places.release()

    async def _check(self) -> None:
        """Look at each session now and then: it lives while it has a stream, and hints may be lost."""
        while True:
            keys = list(self._here)
            pause = self._settings.session_checked / max(1, len(keys))
            for key in keys or [""]:
                await anyio.sleep(pause)
                if key in self._here:
                    self._look_soon(key, checks=True)

    async def _look(self, key: str) -> Named | None:
        """Read a session, and have its streams here do as it says; returns it, where there are such."""
        here = self._here.get(key)
        if here is None:
            return None
        async with here.turn:
            if not here.streams:
                return None
            try:
                named = await self._sessions.read(key, here.streams[0].named.owner)
            except Rejection as rejection:
                if rejection.status == 404:
                    here.end()
                return None
            for stream in list(here.streams):
                if stream.is_known and stream in here.streams:  # it may have ended meanwhile
                    await self._apply(stream, named.session)
        return named

    async def _relieve(self, named: Named) -> None:
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
        try:
            await self._hub.watch_others(stream, self._uris(session) if is_newest else ())
            await self._bus.flush(timeout=_FLUSHED_WITHIN)
        except BusError as error:
            self._log.debug("not all is heard that a session subscribes to", error=str(error))
        if takes_over:
            stream.catch_up(session)
