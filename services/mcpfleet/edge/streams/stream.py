"""One listen stream: the changes that wait, and the loop that writes them until the stream ends."""

# Longer than 400 lines: one stream's state, its loop and its end, with the fan-out that wakes it.

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic_core import from_json

from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.transport.grant import Frame, Grant
from mcpfleet.edge.transport.http_exchange import ClientStalled, while_there
from mcpfleet.views.view import View
from mcpfleet.wire import notices, reply
from mcpfleet.wire.filter import Filter, ListKind
from mcpfleet.wire.notices import LIST_CHANGED, Notice

_TURN: Final = 64
"""Streams that get an event in one turn of the event loop: with the writes that follow, milliseconds of work."""

_NONE: Final[dict[str, bool]] = {}
"""Nothing: most streams never have a half-written frame."""

Tell: TypeAlias = Callable[["Stream"], None]
"""Tells one stream of an event."""


class Exit(StrEnum):
    """Why a stream ended."""

    CLIENT_GONE = "client_gone"
    LEASE_ENDED = "permission_ended"
    """Its lease was not renewed in time. Logs and metrics keep the word of former releases."""
    SHUTDOWN = "shutdown"
    TOO_SLOW = "too_slow"
    """More changes waited than may wait for one stream."""
    WRITE_FAILED = "write_failed"
    """The client did not read what it was sent."""
    LIFETIME = "lifetime"
    NOTHING_HONOURED = "nothing_honoured"
    """The endpoint offers nothing that the filter names (D6)."""
    SESSION_ENDED = "session_ended"
    """The stream's session has ended."""
    REPLACED = "replaced"
    """The session has the newest streams that it may have, and this is none of them (N10)."""
    NO_ROOM = "no_room"
    """The session subscribes to more than this edge has memory for."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended."""

    kind: Literal["listen", "session"]
    reason: str
    """A value of `Exit`, or `failed`."""
    frames: int
    """Messages that were written: the acknowledgment, changes and the last one, without comments."""
    seconds: float
    terminal: Mapping[str, Any] | None
    """The last message, if the stream ended by one."""


class StreamBounds(NamedTuple):
    """The settings of one stream."""

    keepalive: float
    """Seconds of silence after which a comment is sent."""
    lasts: float
    """Seconds after which the stream ends in any case."""
    pending: int
    """Changes that may wait."""


class Stream:
    """One client's stream. `run` is its loop; the other methods may be called at any time from the same event loop.

    A change waits until the stream is acknowledged, and while it is fenced; equal changes wait once. A change that
    comes while an equal one is written waits again, since the client may have read before it (S16).
    """

    __slots__ = (
        "_began", "_exchange", "_exit", "_frames", "_is_fenced", "_keepalive", "_lasts_until", "_pending", "_terminal",
        "_timer", "_unsettled", "_wake", "_written", "bound", "digests", "endpoint", "grant", "has_apps", "holds_until",
        "honoured", "id", "lease", "on_unwritten", "on_written", "preference", "revision", "tells_language", "view",
    )  # fmt: skip

    kind: ClassVar[Literal["listen", "session"]] = "listen"
    """For metrics and observers."""

    def __init__(
        self,
        exchange: Exchange,
        identifier: bytes,
        *,
        lease: StreamLease,
        honoured: Filter,
        bounds: StreamBounds,
    ) -> None:
        """Prepare a stream, which sends nothing before `run`.

        Args:
            exchange: the listen request's. The stream keeps its view, and compares later views with it.
            identifier: the listen request's id, as JSON.
            lease: lets the stream go on.
            honoured: the part of the client's filter that the stream serves.
            bounds: from the settings.
        """
        self.id = identifier
        self.endpoint = exchange.endpoint
        self.revision = exchange.revision.name
        self.has_apps = exchange.has_apps
        self.preference, self.tells_language = exchange.preference, exchange.tells_language
        self.lease = lease
        self.holds_until = lease.expires
        """Monotonic seconds until which the stream may go on without a renewal."""
        self.grant = Grant()
        """The right to be sent changes. A change that was not written when it ends waits again (X53)."""
        self.honoured = honoured
        self.view = exchange.view
        self.digests: dict[ListKind, bytes] = {kind: self.view.list_digest(kind) for kind in honoured.lists}
        """The digests of the lists that the client may have seen last (S15)."""
        self.on_written: Callable[[int], None] = lambda _: None
        """Called with the number of changes that were written."""
        self.on_unwritten: Callable[[dict[str, Notice]], None] | None = None
        """Takes changes whose grant ended before a socket took them, and offers those again that may be sent (X53)."""
        self._exchange = exchange
        self.bound = bounds.pending
        """Changes that may wait."""
        self._keepalive = bounds.keepalive
        self._lasts_until = time.monotonic() + bounds.lasts
        self._written = self._began = time.monotonic()
        self._frames = 0
        self._terminal = b""
        self._pending: dict[str, Notice] = {}
        self._exit: Exit | None = None
        self._is_fenced = False
        self._unsettled: dict[str, bool] = _NONE
        """The changes of half-written frames of which it is not known yet whether they may go on; and whether each has
        happened again meanwhile (X54)."""
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_connection(self) -> bool:
        """Whether it occupies a connection alone, as each request of HTTP/1.1 does."""
        return not self._exchange.http_version.startswith("2")

    # -- changes ------------------------------------------------------------------------------------------------------

    def offer(self, key: str, notice: Notice) -> None:
        """Queue a change, unless an equal one waits already.

        Args:
            key: names what has changed: a list's kind or a URI.
            notice: the notification to write.
        """
        if self._unsettled and self.settle(key):
            return
        if self._exit is not None or key in self._pending:
            return
        if len(self._pending) >= self.bound:
            self.end(Exit.TOO_SLOW)
            return
        self._pending[key] = notice
        if self._wake is not None and not self._is_fenced:
            self._wake_up()

    def offer_newest(self, key: str, notice: Notice) -> None:
        """Queue a change, in place of an older one with the same key."""
        if self._unsettled:
            self.settle(key)  # the half-written one is older
        if key in self._pending and self._exit is None:
            self._pending[key] = notice
        else:
            self.offer(key, notice)

    def hold_back(self, key: str) -> bool:
        """Take out a change that waits, or that no socket has; return whether one waited."""
        self.grant.end()
        return self._pending.pop(key, None) is not None

    def withdraw(self, key: str) -> None:
        """Remove a change that waits."""
        self._pending.pop(key, None)
        if key in self._unsettled:
            self._unsettled = _NONE
            self.grant.refuse()

    @property
    def allowed(self) -> Filter:
        """The part of what it honours that the operator's policy allows now."""
        return self.honoured if self.lease.allowed is None else self.lease.allowed

    def give_up(self, keys: Iterable[str]) -> None:
        """Hear no more of lists and URIs, since the operator's policy allows them no more."""
        for key in keys:
            self.digests.pop(key, None)  # type: ignore[call-overload]  # a URI is no kind of list
            self.withdraw(key)

    def settle(self, key: str) -> bool:
        """Note that a change may still be sent; return whether a half-written frame has it, and it need not wait."""
        if key not in self._unsettled:
            return False
        is_again = self._unsettled.pop(key)
        if not self._unsettled:
            self.grant.confirm()
        return not is_again

    def see(self, view: View) -> None:
        """Take the caller's newest view, and queue a change for each list that differs."""
        self.view = view
        for kind, former in self.digests.items():
            digest = view.list_digest(kind)
            if digest != former:
                self.digests[kind] = digest
                self.offer(kind, LIST_CHANGED[kind])

    def fence(self) -> None:
        """Write nothing more until `lift`: the lease is being renewed (S3)."""
        self._is_fenced = True
        self.grant.end()

    def lift(self) -> dict[str, Notice]:
        """Write again after a fence; return the changes that waited, which must be offered again to be written."""
        self._is_fenced = False
        waited, self._pending = self._pending, {}
        half: dict[str, Notice] = self.grant.half_written()
        self._unsettled = {key: key in waited for key in half} if half else _NONE
        if not half:
            self.grant.confirm()
        self._wake_up()
        return half | waited

    def end(self, why: Exit) -> None:
        """End the stream. The first reason counts, and waiting changes are dropped (S12)."""
        if self._exit is None:
            self._exit = why
            if self._is_fenced or self._unsettled or why is Exit.LEASE_ENDED:
                self.grant.refuse()
            self._pending.clear()
            self._wake_up()

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended, or is about to."""
        return self._exit is not None

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Acknowledge, write changes, and close the stream; return why it ended.

        Raises:
            ClientStalled: the client does not read.
        """
        failure: ClientStalled | None = None
        # asyncio's own group and one more task cost little: there may be thousands of streams.
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

    def ended(self, why: str) -> StreamEnd:
        """Return how it ended, once it has."""
        terminal = from_json(self._terminal.partition(b"data: ")[2]) if self._terminal else None
        return StreamEnd(self.kind, why, self._frames, time.monotonic() - self._began, terminal)

    @property
    def began(self) -> float:
        """When it began (monotonic)."""
        return self._began

    async def while_there(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work before the stream runs; raise `ClientGone` where the client leaves meanwhile."""
        await while_there(self._exchange, work)

    async def _watch_client(self) -> None:
        await self._exchange.wait_gone()
        self.end(Exit.CLIENT_GONE)

    async def _write(self) -> None:
        await self._exchange.open_stream()
        if opening := self._opening():
            await self._send(opening)
            self._frames += 1
        while not self.is_over:
            await self._go_on()
        if self._exit is not Exit.CLIENT_GONE:
            closing = self._closing()
            if closing:
                await self._exchange.send_part(closing)
                self._frames += 1
            await self._exchange.close_stream()
            self._terminal = closing

    def _opening(self) -> bytes:
        """Return the bytes to begin with."""
        return notices.acknowledged(self.honoured.echo()).event(self.id)

    def _changes(self, pending: Iterable[Notice]) -> bytes:
        """Return the bytes for changes."""
        identifier = self.id
        return b"".join([notice.event(identifier) for notice in pending])

    def _closing(self) -> bytes:
        """Return the bytes to end with, for a client that is still there."""
        return notices.ended(self.id, self.view.server)

    async def _go_on(self) -> None:
        """Write waiting changes, or wait for a change, the next keepalive, or the end of the lease or lifetime."""
        now = time.monotonic()
        if now >= self._lasts_until:
            self.end(Exit.LIFETIME)
        elif now >= self.holds_until:
            self.end(Exit.LEASE_ENDED)
        elif self._pending and not self._is_fenced:
            pending, self._pending = self._pending, {}
            await self._send_changes(pending)
        elif now >= self._written + self._keepalive:
            await self._send(reply.KEEPALIVE)
        else:
            await self._wait()

    async def _send(self, data: bytes) -> None:
        await self._exchange.send_part(data)
        self._written = time.monotonic()

    async def _send_changes(self, pending: dict[str, Notice]) -> None:
        data = self._changes(pending.values())
        await self._exchange.send_part(data, Frame(data, self.grant, lambda: self._take_back(pending), pending))
        self._written = time.monotonic()
        self._frames += len(pending)
        self.on_written(len(pending))

    def _take_back(self, unwritten: dict[str, Notice]) -> None:
        """Let changes wait again that were not written, since the grant ended before a socket took them."""
        if self._exit is not None:
            return
        if self._is_fenced or self.on_unwritten is None:
            self._pending = unwritten | self._pending
        else:
            self.on_unwritten(unwritten)

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
        """Return the seconds until something is due without a change."""
        due = min(self._written + self._keepalive, self._lasts_until, self.holds_until)
        return max(0.0, due - time.monotonic())

    def _on_time(self) -> None:
        """Wake the loop where something is due. Moving the timer at each write would cost more than this check."""
        self._timer = None
        left = self._left()
        if not left:
            self._wake_up()
        elif self._wake is not None:
            self._timer = asyncio.get_running_loop().call_later(left, self._on_time)

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class FanOut:
    """Tells thousands of streams of one event in turns of the event loop, so that calls go on meanwhile.

    An event that happens again meanwhile is told once more afterwards.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Callable[[], None] | None] = {}
        """By event, what tells it again afterwards; None where it has not happened again."""

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
