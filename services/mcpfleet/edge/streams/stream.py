"""One listen stream: what waits to be told, and the loop that writes it until one of the stream's named ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, TypeAlias, TypedDict

from mcpfleet.edge.streams.lease import Permission
from mcpfleet.edge.transport.http_exchange import ClientStalled, HttpExchange, while_there
from mcpfleet.views.view import View
from mcpfleet.wire import notices, reply
from mcpfleet.wire.filter import Filter, ListKind
from mcpfleet.wire.notices import LIST_CHANGED, Notice

_TURN: Final = 64
"""Streams that are told in one turn of the event loop: with the writing that follows, some milliseconds of work."""

Tell: TypeAlias = Callable[["Stream"], None]
"""Tells one stream of an event."""


class Exit(StrEnum):
    """Why a stream ended."""

    CLIENT_GONE = "client_gone"
    PERMISSION_ENDED = "permission_ended"
    SHUTDOWN = "shutdown"
    TOO_SLOW = "too_slow"
    """More changes waited than a stream may have."""
    WRITE_FAILED = "write_failed"
    """The client did not read what it was sent."""
    LIFETIME = "lifetime"
    NOTHING_HONOURED = "nothing_honoured"
    """The endpoint has nothing of what was asked for (D6)."""
    SESSION_ENDED = "session_ended"
    """The session is over that the stream was of."""
    REPLACED = "replaced"
    """The session has newer streams than it may have (N10)."""
    NO_ROOM = "no_room"
    """The session subscribes to more than this edge has memory for."""


class Terms(TypedDict):
    """What the settings say of a stream."""

    keepalive: float
    lasts: float
    bound: int


class Stream:
    """One client's stream. `run` is its loop; all else may be called at any time, from the same event loop.

    What is offered before the acknowledgment, and while the stream is fenced, waits; equal changes wait once. A change
    of what is just being written waits again, since the client may have read before it (S16).
    """

    __slots__ = (
        "_exchange", "_exit", "_is_fenced", "_keepalive", "_lasts_until", "_pending", "_timer", "_wake",
        "_written", "bound", "digests", "endpoint", "holds_until", "honoured", "id", "on_written", "permission", "view",
    )  # fmt: skip

    def __init__(
        self,
        exchange: HttpExchange,
        identifier: bytes,
        *,
        endpoint: str,
        permission: Permission,
        honoured: Filter,
        view: View,
        keepalive: float,
        lasts: float,
        bound: int,
    ) -> None:
        """Describe a stream, which is told nothing before `run`.

        Args:
            exchange: the listen request's.
            identifier: the listen request's id, as JSON.
            endpoint: the endpoint's name.
            permission: by which it goes on.
            honoured: what it tells of.
            view: what its caller sees, with which later views are compared.
            keepalive: seconds of silence after which a comment is sent.
            lasts: seconds after which it ends whatever happens.
            bound: changes that may wait.
        """
        self.id = identifier
        self.endpoint = endpoint
        self.permission = permission
        self.holds_until = permission.expires
        """Monotonic seconds until which it may go on without being renewed."""
        self.honoured = honoured
        self.view = view
        self.digests: dict[ListKind, bytes] = {kind: view.list_digest(kind) for kind in honoured.lists}
        """Of the lists as the client may have seen them last (S15)."""
        self.on_written: Callable[[int], None] = lambda _: None
        """Hears how many changes were written."""
        self._exchange = exchange
        self.bound = bound
        """Changes that may wait."""
        self._keepalive = keepalive
        self._lasts_until = time.monotonic() + lasts
        self._written = time.monotonic()
        self._pending: dict[str, Notice] = {}
        self._exit: Exit | None = None
        self._is_fenced = False
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_connection(self) -> bool:
        """Whether nothing else can come over its connection: HTTP/1.1 has one for each request."""
        return not self._exchange.http_version.startswith("2")

    # -- what happens to it -------------------------------------------------------------------------------------------

    def offer(self, key: str, notice: Notice) -> None:
        """Have a change told, unless the same one waits already.

        Args:
            key: what changed: the list's kind or the URI.
            notice: what is written of it.
        """
        if self._exit is not None or key in self._pending:
            return
        if len(self._pending) >= self.bound:
            self.end(Exit.TOO_SLOW)
            return
        self._pending[key] = notice
        if self._wake is not None and not self._is_fenced:
            self._rouse()

    def offer_newest(self, key: str, notice: Notice) -> None:
        """Have a change told in the place of an older one of the same thing that waits."""
        if key in self._pending and self._exit is None:
            self._pending[key] = notice
        else:
            self.offer(key, notice)

    def withdraw(self, key: str) -> None:
        """Have a change not told that waits."""
        self._pending.pop(key, None)

    def see(self, view: View) -> None:
        """Take what the caller sees from now on, and tell of the lists that differ."""
        self.view = view
        for kind, known in self.digests.items():
            digest = view.list_digest(kind)
            if digest != known:
                self.digests[kind] = digest
                self.offer(kind, LIST_CHANGED[kind])

    def fence(self) -> None:
        """Write nothing more until `lift`: whether the permission goes on is being asked (S3)."""
        self._is_fenced = True

    def lift(self, *, may_watch: Callable[[str], bool]) -> None:
        """Go on after a fence.

        Args:
            may_watch: says which of the URIs that wait the caller may still hear of.
        """
        self._is_fenced = False
        self._pending = {key: each for key, each in self._pending.items() if key in LIST_CHANGED or may_watch(key)}
        self._rouse()

    def end(self, why: Exit) -> None:
        """Have the stream end; of several reasons the first counts, and what waits is not told any more (S12)."""
        if self._exit is None:
            self._exit = why
            self._pending.clear()
            self._rouse()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._exit is not None

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Acknowledge, tell what changes, and close the stream; returns why it ended.

        Raises:
            ClientStalled: the client does not read what it is sent.
        """
        failure: ClientStalled | None = None
        # asyncio's own group, and one task beside the loop: there may be thousands of streams.
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch_client())
            try:
                await self._write()
            except ClientStalled as stalled:  # raised again outside of the group, which would wrap it
                failure = stalled
            finally:
                if self._timer is not None:
                    self._timer.cancel()
                watch.cancel()
        if failure is not None:
            raise failure
        assert self._exit is not None
        return self._exit

    async def while_there(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what is to be done before it runs; raises `ClientGone` where the client leaves meanwhile."""
        await while_there(self._exchange, work)

    async def _watch_client(self) -> None:
        await self._exchange.wait_gone()
        self.end(Exit.CLIENT_GONE)

    async def _write(self) -> None:
        await self._exchange.open_stream()
        if opening := self._opening():
            await self._send(opening)
        while not self.is_over:
            await self._go_on()
        if self._exit is not Exit.CLIENT_GONE:
            if closing := self._closing():
                await self._exchange.send_part(closing)
            await self._exchange.close_stream()

    def _opening(self) -> bytes:
        """What is said first."""
        return notices.acknowledged(self.honoured.echo()).event(self.id)

    def _telling(self, pending: Iterable[Notice]) -> bytes:
        """What is said of changes."""
        identifier = self.id
        return b"".join([notice.event(identifier) for notice in pending])

    def _closing(self) -> bytes:
        """What is said last, where there is somebody to hear it."""
        return notices.ended(self.id, self.view.server)

    async def _go_on(self) -> None:
        """Write what waits, else wait for news, a time of silence, or the end of the stream's time."""
        now = time.monotonic()
        if now >= self._lasts_until:
            self.end(Exit.LIFETIME)
        elif now >= self.holds_until:
            self.end(Exit.PERMISSION_ENDED)
        elif self._pending and not self._is_fenced:
            pending, self._pending = self._pending, {}
            await self._send(self._telling(pending.values()))
            self.on_written(len(pending))
        elif now >= self._written + self._keepalive:
            await self._send(reply.KEEPALIVE)
        else:
            await self._wait()

    async def _send(self, data: bytes) -> None:
        await self._exchange.send_part(data)
        self._written = time.monotonic()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        if self._timer is None:
            self._timer = loop.call_later(self._left(), self._on_time)
        try:
            await self._wake
        finally:
            self._wake = None

    def _left(self) -> float:
        """Seconds until there is something to do without news."""
        due = min(self._written + self._keepalive, self._lasts_until, self.holds_until)
        return max(0.0, due - time.monotonic())

    def _on_time(self) -> None:
        """Look whether anything is due. The timer is not moved at each writing, which would cost more than this."""
        self._timer = None
        left = self._left()
        if not left:
            self._rouse()
        elif self._wake is not None:
            self._timer = asyncio.get_running_loop().call_later(left, self._on_time)

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class FanOut:
    """Tells thousands of streams of one event in turns of the event loop, so that calls go on meanwhile.

    An event that happens again while it is being told is told once more afterwards.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Callable[[], None] | None] = {}
        """By event, what begins it again once it is told; None where it has not happened again."""

    def begin(self, event: Hashable, streams: Iterable[Stream], make: Callable[[], Tell]) -> None:
        """Tell streams of an event.

        Args:
            event: names it; one event is under way once at a time.
            streams: those to tell. They are read again where the event begins again.
            make: makes the function that tells one stream.
        """
        if event in self._under_way:
            self._under_way[event] = lambda: self.begin(event, streams, make)
            return
        self._under_way[event] = None
        self._turn(event, iter(list(streams)), make())

    def _turn(self, event: Hashable, left: Iterator[Stream], tell: Tell) -> None:
        now = list(islice(left, _TURN))
        try:
            for stream in now:
                tell(stream)
        except BaseException:
            del self._under_way[event]
            raise
        if len(now) == _TURN:
            asyncio.get_running_loop().call_soon(self._turn, event, left, tell)
        elif (again := self._under_way.pop(event)) is not None:
            again()
