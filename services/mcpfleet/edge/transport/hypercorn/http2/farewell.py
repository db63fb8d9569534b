"""Leading clients of HTTP/2 away from an edge that drains: it has no `Connection: close` (RFC 9113, 6.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpfleet.edge.transport.hypercorn.http2.protocol import Http2


class Farewell:
    """Leads the clients of HTTP/2 away, each once: where it has no request just now, or else when that is over.

    Some libraries give up what runs when they hear of it, though they should not. So a connection hears it while
    nothing runs, as far as there is such a moment; one that is never idle, as a balancer's may be, hears it in the
    midst. One that is made meanwhile has its first request answered before.
    """

    def __init__(self) -> None:
        """Know no connection yet."""
        self._connections: set[Http2] = set()
        self._has_begun = False

    def __len__(self) -> int:
        return len(self._connections)

    def join(self, connection: Http2) -> None:
        """Know a connection until `leave`."""
        self._connections.add(connection)

    def leave(self, connection: Http2) -> None:
        """Know it no more."""
        self._connections.discard(connection)

    def lead_away(self, *, busy: bool) -> None:
        """Tell each connection from now on when it is idle; at once, where `busy` says that requests may run."""
        self._has_begun = True
        for connection in list(self._connections):
            if busy or connection.idle:
                self._tell(connection)

    def heed(self, connection: Http2) -> None:
        """Tell a connection whose last request is over, if that is wanted."""
        if self._has_begun and connection.idle and connection.keep_alive_requests:
            self._tell(connection)

    def _tell(self, connection: Http2) -> None:
        if connection in self._connections:
            self.leave(connection)
            connection.task_group.spawn(connection.go_away)
