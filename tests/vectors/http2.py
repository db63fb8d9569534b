"""Vectors over HTTP/2 without TLS, by prior knowledge."""

from __future__ import annotations

import socket
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, WindowUpdated

from tests.vectors.http1 import TIMEOUT, Answer, content


class Http2:
    """One connection, on which requests follow each other."""

    def __init__(self, address: tuple[str, int]) -> None:
        # The server must answer what a careful client would mend, or refuse to send.
        config = H2Configuration(
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._connection = H2Connection(config)
        self._socket = socket.create_connection(address, TIMEOUT)
        # A body follows its headers at once, and not when their arrival was confirmed 40 ms later.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._events: list[Event] = []
        self._connection.initiate_connection()
        self._flush()

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exchange(self, request: dict[str, Any]) -> Answer:
        """Send a request, and read its answer.

        Raises:
            EOFError: the connection or the stream ended first.
        """
        stream = self._connection.get_next_available_stream_id()
        body = content(request.get("body", ""))
        framing = request.get("framing", "length")
        self._connection.send_headers(stream, self._headers(request, body, framing), end_stream="body" not in request)
        self._flush()
        answer = _Gathering(stream)
        if "body" in request:
            self._send_body(stream, body, answer, ends=framing not in ("unfinished", "as stated"))
        while not answer.is_over:
            self._receive(answer)
        if framing in ("unfinished", "as stated") and not answer.is_reset:
            self._connection.reset_stream(stream)
            self._flush()
        return answer.answer()

    def _headers(self, request: dict[str, Any], body: bytes, framing: str) -> list[tuple[bytes, bytes]]:
        pairs = [(content(name).lower(), content(value)) for name, value in request["headers"]]
        authority = [value for name, value in pairs if name == b"host"]
        head = [
            (b":method", request["method"].encode()),
            (b":scheme", b"http"),
            (b":authority", authority[0]),
            (b":path", request["path"].encode()),
        ]
        # Spaces around a value are no part of it in HTTP/1.1, and forbidden in HTTP/2.
        rest = [(name, value.strip(b" \t")) for name, value in pairs if name != b"host"]
        names = {name for name, _ in rest}
        if "body" in request and framing == "length" and b"content-length" not in names:
            rest.append((b"content-length", b"%d" % len(body)))
        return head + rest

    def _send_body(self, stream: int, body: bytes, answer: _Gathering, *, ends: bool) -> None:
        """Send in pieces, as the windows allow, until the answer is there."""
        while body and not answer.is_over:
            room = min(
                self._connection.local_flow_control_window(stream), self._connection.max_outbound_frame_size, 10_000
            )
            if room <= 0:
                self._receive(answer)
                continue
            piece, body = body[:room], body[room:]
            self._connection.send_data(stream, piece)
            self._flush()
        if ends and not answer.is_over:
            self._connection.end_stream(stream)
            self._flush()

    def _receive(self, answer: _Gathering) -> None:
        data = self._socket.recv(65_536)
        if not data:
            raise EOFError("the connection ended")
        for event in self._connection.receive_data(data):
            if isinstance(event, DataReceived):
                self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if not isinstance(event, WindowUpdated):
                answer.take(event)
        self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._connection.data_to_send())


class _Gathering:
    """An answer that arrives."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._headers: list[tuple[str, str]] = []
        self._body = b""
        self.is_over = False
        self.is_reset = False

    def take(self, event: Event) -> None:
        if getattr(event, "stream_id", None) != self._stream:
            return
        if isinstance(event, ResponseReceived):
            self._headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
        elif isinstance(event, DataReceived):
            self._body += event.data
        elif isinstance(event, StreamEnded):
            self.is_over = True
        elif isinstance(event, StreamReset):
            self.is_over = self.is_reset = True

    def answer(self) -> Answer:
        """The response.

        Raises:
            EOFError: the stream was reset before its answer.
        """
        if not self._headers:
            raise EOFError("the stream was reset")
        return Answer(int(dict(self._headers)[":status"]), self._headers[1:], self._body)
