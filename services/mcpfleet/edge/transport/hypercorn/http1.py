"""Hypercorn's HTTP/1.1, with a fast path for whole answers on a connection that stays open.

Nearly all answers are of this kind. Hypercorn passes each through eight events and h11's state machine, a sixth of the
cost of a call at an edge. The bytes are the same, and all other answers go through Hypercorn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import h11
from hypercorn.events import RawData, Updated
from hypercorn.protocol.events import Request, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID, H2ProtocolAssumedError, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from mcpfleet.edge.transport.hypercorn.framing import PREFACE, StrictConnection

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
"""Bytes that no header may have. The line feed is checked by counting lines."""


class Http1(H11Protocol):
    """One client's connection."""

    connection: h11.Connection

    def __init__(self, *arguments: Any) -> None:
        """Take the arguments of Hypercorn's protocol."""
        super().__init__(*arguments)
        self.connection = StrictConnection(self.config.h11_max_incomplete_size, is_first=True)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Hand a connection that begins with the preface of HTTP/2 to that protocol.

        Hypercorn would also upgrade requests to HTTP/2. A proxy that forwards an upgrade cannot check what follows it,
        so no request is upgraded.
        """
        if event.http_version == b"2.0":
            raise H2ProtocolAssumedError(PREFACE + self.connection.trailing_data[0])

    async def _create_stream(self, request: h11.Request) -> None:
        """Serve a request. WebSockets do not exist here, so a request for one is answered like any other."""
        stream = self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    @property
    def has_request(self) -> bool:
        """Whether the current request has arrived whole."""
        return self.connection.their_state is h11.DONE

    @property
    def has_partial_body(self) -> bool:
        """Whether the body of the last request has not arrived to its end."""
        return self.connection.their_state is h11.SEND_BODY

    @property
    def has_partial_head(self) -> bool:
        """Whether a part of the next request has arrived; valid while none is being served."""
        return bool(self.connection.trailing_data[0])

    async def refuse_late_head(self) -> None:
        """Answer 408 where a part of the next request's head has arrived."""
        if self.connection.our_state is h11.IDLE and self.has_partial_head:
            await self._send_error_response(408)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer the current request, and prepare for the next one.

        Args:
            status: the answer's.
            headers: the answer's, with its length. The headers of every response are added.
            body: the whole body.

        Returns:
            False where Hypercorn must answer: the connection ends with this answer, the request has not arrived whole,
            or a header is malformed.
        """
        stream, parsed = self.stream, self.connection
        if not isinstance(stream, HTTPStream) or stream.state is not ASGIHTTPState.REQUEST:
            return False
        if parsed.their_state is not h11.DONE or parsed.our_state is not h11.SEND_RESPONSE:
            return False
        if self.context.terminated.is_set() or stream.scope["method"] == "HEAD":
            return False
        if any(name == b"connection" for name, _ in headers):
            return False
        lines = [b"%b: %b" % each for each in (*headers, *self.config.response_headers("h11"))]
        head = b"\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or _CONTROL.search(head):
            return False
        await self.send(RawData(b"HTTP/1.1 %d \r\n%b\r\n\r\n%b" % (status, head.replace(b"\n", b"\r\n"), body)))
        stream.state = ASGIHTTPState.CLOSED
        await stream.handle(StreamClosed(STREAM_ID))
        self.stream = None
        self.connection = self._next(*parsed.trailing_data)
        await self.can_read.set()
        await self.send(Updated(idle=True))
        return True

    def _next(self, arrived: bytes, is_over: bool) -> h11.Connection:
        """Return the parser for the next request, with the bytes of it that have arrived."""
        connection = StrictConnection(self.config.h11_max_incomplete_size, is_first=False)
        if arrived:
            connection.receive_data(arrived)
        if is_over:
            connection.receive_data(b"")
        return connection
