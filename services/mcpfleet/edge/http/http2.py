"""Hypercorn's HTTP/2, mended where what one stream brings ends its connection, and all other requests with it.

And where an edge leaves: HTTP/2 has no `Connection: close`, so a client is led away by GOAWAY (RFC 9113, 6.8).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived
from h2.exceptions import ProtocolError
from h2.frame_buffer import FrameBuffer
from hypercorn.events import RawData
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h2 import H2Protocol
from hyperframe.frame import Frame, GoAwayFrame

_GO_AWAY: Final = GoAwayFrame(0, last_stream_id=2**31 - 1).serialize()
"""Make no new request on this connection; all that arrive are still answered, also what crosses this on its way."""
_HEAD: Final = 9
"""Bytes of a frame's head, of which the first three are its length."""
_NEEDED: Final = frozenset((b":method", b":path"))
"""What Hypercorn reads as ASCII, and takes for granted."""


class _Frames(FrameBuffer):
    """h2's buffer, which refuses an overlong frame by its head: h2 takes all of its up to 16 MiB before it looks."""

    def __next__(self) -> Frame:
        self._validate_frame_length(int.from_bytes(self._data[:3]) if len(self._data) >= _HEAD else 0)
        return super().__next__()


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


class Http2(H2Protocol):
    """One client's connection."""

    def __init__(self, *arguments: Any) -> None:
        """Take what Hypercorn's takes."""
        super().__init__(*arguments)
        frames = _Frames(server=True)
        frames.max_frame_size = self.connection.incoming_buffer.max_frame_size
        self.connection.incoming_buffer = frames
        self._farewell: Farewell | None = getattr(self.config, "farewell", None)  # the admin port's has none
        if self._farewell is not None:
            self._farewell.join(self)

    async def go_away(self) -> None:
        """Send the frame past h2, which would send no answer after it."""
        if not self.closed:
            await self.send(RawData(_GO_AWAY))

    async def close(self) -> None:
        """Name the last request that was taken, so that a client knows of a later one that it did not run."""
        try:
            self.connection.close_connection()
        except ProtocolError:
            return  # it is over already
        await self._flush()

    def forget(self) -> None:
        """The connection is over, however it ended: nobody is to be told anything."""
        if self._farewell is not None:
            self._farewell.leave(self)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send what comes of a request."""
        await super().stream_send(event)
        if isinstance(event, StreamClosed) and self._farewell is not None:
            self._farewell.heed(self)

    async def _handle_events(self, events: list[Event]) -> None:
        await super()._handle_events(self._in_order(events))  # type: ignore[arg-type]  # it goes through them once
        if self._farewell is not None:  # a client may have reset its last request
            self._farewell.heed(self)

    def _in_order(self, events: list[Event]) -> Iterator[Event]:
        """Leave out what Hypercorn cannot take.

        A part of a body may come when its request is answered already: it was refused by its head, say. It is taken and
        dropped, so that a client which sends its body to the end reads the answer.
        """
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, RequestReceived) and not _is_readable(event):
                self.connection.reset_stream(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
            else:
                yield event


def _is_readable(event: RequestReceived) -> bool:
    found = {name for name, value in event.headers if name in _NEEDED and value.isascii()}
    return found == _NEEDED
