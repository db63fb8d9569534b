"""How long a server's connections live: deadlines for their waits, room for other clients, and GOAWAY at a drain."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

_SPARED_HEAD: Final = 1.0
"""Seconds that a client always has for a head, though others wait for its connection."""
_SPARED_IDLE: Final = 5.0
"""Seconds that a connection without a request, or with an unfinished body, is kept though others wait for it."""
_LOOKS_EVERY: Final = 0.25
"""Seconds between two looks for an HTTP/2 connection that can make room: each look goes through their requests."""
LINGER: Final = 2.0
"""Seconds that a client has to read an answer that came before it had sent its body."""
_LONGEST_BODY: Final = 3600.0
"""Seconds after which a connection whose body does not end is closed."""

Item = TypeVar("Item")


class TimedConnection(Protocol):
    """A connection whose waits are timed."""

    @property
    def is_serving(self) -> bool:
        """Whether a request is being served."""

    def waits_for_client(self, least: float) -> bool:
        """Return whether all requests of an HTTP/2 connection wait for their client, one for `least` seconds."""

    def close_soon(self) -> None:
        """Close the connection, which nobody uses."""

    def refuse_head_soon(self) -> None:
        """Close the connection: its client takes too long for a head."""

    def hang_up(self) -> None:
        """Close the connection at once."""


class MultiplexedConnection(Protocol):
    """A connection of HTTP/2, as Hypercorn and our own class describe it."""

    keep_alive_requests: int
    """Requests that it has had."""
    task_group: Any

    @property
    def idle(self) -> Any:
        """Whether it has no request."""

    async def go_away(self) -> None:
        """Send GOAWAY."""


class Deadlines(Generic[Item]):
    """Items that wait, each from its own moment on, and all for the same time at most.

    One timer serves all of them, because each request ends one wait and begins another.
    """

    def __init__(self, timeout: float, end: Callable[[Item], None]) -> None:
        """Begin without items.

        Args:
            timeout: seconds that each item may wait.
            end: ends an item whose time is over.
        """
        self._timeout = timeout
        self._end = end
        self._since: dict[Item, float] = {}
        """When each item began to wait, by the loop's clock; the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, item: Item) -> bool:
        return item in self._since

    def add(self, item: Item) -> None:
        """Start an item's time, or start it again."""
        loop = asyncio.get_running_loop()
        self._since.pop(item, None)
        self._since[item] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._sweep)

    def remove(self, item: Item) -> None:
        """Stop an item's time, if it runs."""
        self._since.pop(item, None)

    def end_all(self) -> None:
        """End all items now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._since:
            self._end_one(next(iter(self._since)))

    def end_oldest(self, least: float, may_end: Callable[[Item], bool]) -> bool:
        """End the oldest item that may end; return False where none has waited for `least` seconds."""
        latest = asyncio.get_running_loop().time() - least
        for item, since in self._since.items():
            if since > latest:
                return False
            if may_end(item):
                self._end_one(item)
                return True
        return False

    def _sweep(self) -> None:
        """End the items whose time is over, and run again when the next item's time is."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._since:
            oldest, since = next(iter(self._since.items()))
            if since + self._timeout > loop.time():
                self._timer = loop.call_at(since + self._timeout, self._sweep)
                return
            self._end_one(oldest)

    def _end_one(self, item: Item) -> None:
        del self._since[item]
        self._end(item)


class Waits:
    """Times the waits of one server's connections: for a request, a head or a body."""

    def __init__(
        self, *, keep_alive: float, head: float, spared_idle: float = _SPARED_IDLE, spared_head: float = _SPARED_HEAD
    ) -> None:
        """Begin without connections.

        Args:
            keep_alive: seconds that a connection may have no request after one.
            head: seconds from a head's first byte to its end; for the first head, from the connection's start.
            spared_idle: seconds that a connection without a request is kept though others wait for it.
            spared_head: seconds that a head may take though others wait for its connection.
        """
        self._spared_idle = spared_idle
        self._spared_head = spared_head
        self.idle: Deadlines[TimedConnection] = Deadlines(keep_alive, _close)
        self.heads: Deadlines[TimedConnection] = Deadlines(head, _refuse_head)
        self.bodies: Deadlines[TimedConnection] = Deadlines(_LONGEST_BODY, _close)
        """Connections of HTTP/1.1 whose body still arrives. Its reader bounds how long it may take."""
        self.answered: Deadlines[TimedConnection] = Deadlines(LINGER, _hang_up)
        """Connections of HTTP/1.1 whose answer has been sent, and whose body still arrives."""
        self.multiplexed: dict[TimedConnection, None] = {}
        """Connections of HTTP/2, the oldest first."""

    def end_all(self) -> None:
        """Close all connections without a request."""
        self.idle.end_all()
        self.heads.end_all()

    def make_room(self) -> bool:
        """Close one connection without a whole request for a waiting client; return False where none may be closed.

        A client that has had its answer goes first, then one without a head, then one without a body. Where most
        connections lack a head, no idle one is closed: strangers who open connections cannot push out known clients.
        """
        if self.answered.end_oldest(self._spared_head, _is_any):
            return True
        if self.heads.end_oldest(self._spared_head, _has_no_request):
            return True
        if self.bodies.end_oldest(self._spared_idle, _is_any):
            return True
        if self.end_multiplexed():
            return True
        if len(self.heads) >= len(self.idle):
            return False
        return self.idle.end_oldest(self._spared_idle, _has_no_request)

    def end_multiplexed(self) -> bool:
        """End a connection of HTTP/2 whose requests all wait for their client."""
        for connection in self.multiplexed:
            if connection.waits_for_client(self._spared_idle):
                del self.multiplexed[connection]
                connection.close_soon()
                return True
        return False


class MultiplexedRequests:
    """Counts the requests of all HTTP/2 connections, each of which may have hundreds."""

    def __init__(self, most: int, make_room: Callable[[], bool]) -> None:
        """Begin without requests.

        Args:
            most: requests at once.
            make_room: ends a connection whose requests all wait for their client, if there is one.
        """
        self._most = most
        self._make_room = make_room
        self._looked = -math.inf
        self.count = 0
        """Requests whose handlers run, on connections that are open."""
        self.reading = 0
        """Connections that have sent more than one turn can read."""

    def is_full(self) -> bool:
        """Return whether no further request may begin; now and then make room for the next one."""
        if self.count < self._most:
            return False
        now = asyncio.get_running_loop().time()
        if now >= self._looked + _LOOKS_EVERY:
            self._looked = now
            self._make_room()
        return True


def _close(connection: TimedConnection) -> None:
    connection.close_soon()


def _refuse_head(connection: TimedConnection) -> None:
    connection.refuse_head_soon()


def _hang_up(connection: TimedConnection) -> None:
    connection.hang_up()


def _is_any(_: TimedConnection) -> bool:
    return True


def _has_no_request(connection: TimedConnection) -> bool:
    return not connection.is_serving


class GoAways:
    """Sends GOAWAY to each HTTP/2 client of a draining edge once: HTTP/2 has no `Connection: close` (RFC 9113, 6.8).

    Some libraries wrongly give up running requests when they receive GOAWAY. So it goes to connections without a
    request first, and to others when their last request ends. A balancer's connection may never be idle: it gets
    GOAWAY amid its requests. A connection that is made during the drain has its first request answered before.
    """

    def __init__(self) -> None:
        """Begin without connections."""
        self._connections: set[MultiplexedConnection] = set()
        self._has_begun = False

    def __len__(self) -> int:
        return len(self._connections)

    def join(self, connection: MultiplexedConnection) -> None:
        """Add a connection, until `leave`."""
        self._connections.add(connection)

    def leave(self, connection: MultiplexedConnection) -> None:
        """Remove a connection."""
        self._connections.discard(connection)

    def lead_away(self, *, busy: bool) -> None:
        """Send GOAWAY to each connection once it is idle; at once, where `busy` says that requests may run."""
        self._has_begun = True
        for connection in list(self._connections):
            if busy or connection.idle:
                self._send(connection)

    def note_idle(self, connection: MultiplexedConnection) -> None:
        """Send GOAWAY to a connection whose last request has ended, if the drain has begun."""
        if self._has_begun and connection.idle and connection.keep_alive_requests:
            self._send(connection)

    def _send(self, connection: MultiplexedConnection) -> None:
        if connection in self._connections:
            self.leave(connection)
            connection.task_group.spawn(connection.go_away)
