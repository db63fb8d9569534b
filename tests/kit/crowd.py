"""Many listen streams over raw sockets in one process, each with a credential of its own: what came of each, and when.

A client library's stream costs more than an edge's end of it, and would be what is measured.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import urlsplit

from tests.contract.fleet.listener import ACK, END
from tests.kit.waiting import until
from tests.unit.edge.asgi import MODERN, request

_AT_ONCE: Final = 100
"""Streams of one edge that are being opened."""
_OPENS_WITHIN: Final = 60.0


class Heard(asyncio.Protocol):
    """One stream: what came, in order, each with its moment (monotonic seconds)."""

    def __init__(self, identifier: Any, head: bytes) -> None:
        self.id = identifier
        self.kinds: list[str] = []
        """Methods, and `the end` for the result."""
        self.times: list[float] = []
        self.result: Any = None
        """That of the end."""
        self.is_closed = False
        self._request = head
        self._raw = b""
        """Bytes that are no whole chunk yet."""
        self._rest = b""
        """Bytes of the body that are no whole line yet."""
        self._has_head = False
        self._is_refused = False
        self._transport: asyncio.Transport | None = None

    @property
    def ended(self) -> float:
        """When its result came."""
        return self.times[self.kinds.index(END)]

    def stall(self) -> None:
        """Read nothing any more."""
        assert self._transport is not None
        self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        assert self._transport is not None
        self._transport.resume_reading()

    def leave(self) -> None:
        """Close it from this end."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of another class
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note each whole message."""
        now = time.monotonic()
        self._raw += data
        if self._is_refused:
            return
        if not self._has_head:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return
            self._has_head, self._raw = True, rest
            if not head.startswith(b"HTTP/1.1 200"):
                self.kinds.append(head.partition(b"\r\n")[0].decode())
                self.times.append(now)
                self._is_refused = True
                return
        *lines, self._rest = (self._rest + b"".join(self._chunks())).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                self._hear(json.loads(line[6:]), now)

    def _chunks(self) -> Iterator[bytes]:
        """Take the whole chunks out of what came; where one ends says nothing of where a message does."""
        while b"\r\n" in self._raw:
            size, _, rest = self._raw.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            yield rest[:length]
            self._raw = rest[length + 2 :]

    def _hear(self, message: Any, now: float) -> None:
        kind = message.get("method", END)
        if kind == END:
            self.result = message["result"]
        self.kinds.append(kind)
        self.times.append(now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it is closed."""
        self.is_closed = True


@asynccontextmanager
async def crowd(
    url: str, tokens: Sequence[str | None], *, room: int | None = None, **notifications: Any
) -> AsyncIterator[list[Heard]]:
    """Open a stream for each token at an edge, and leave what is left of them at the end of the block.

    Args:
        url: the endpoint's.
        tokens: None for a caller without one.
        room: bytes that this host keeps for a stream that is not read; megabytes where nothing is said.
        notifications: what is listened for.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    streams = [Heard(number, _head(url, number, token, notifications)) for number, token in enumerate(tokens)]
    loop = asyncio.get_running_loop()
    try:
        for first in range(0, len(streams), _AT_ONCE):
            some = streams[first : first + _AT_ONCE]
            for stream in some:
                opened = socket.socket()
                opened.setblocking(False)
                if room is not None:
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
                await loop.sock_connect(opened, (host, port))
                await loop.create_connection(lambda stream=stream: stream, sock=opened)  # type: ignore[misc]  # mypy infers no lambda with a default
            await until(lambda some=some: all(stream.kinds for stream in some), within=_OPENS_WITHIN)  # type: ignore[misc]  # the same
        assert {stream.kinds[0] for stream in streams} <= {ACK}, {stream.kinds[0] for stream in streams}
        yield streams
    finally:
        for stream in streams:
            stream.leave()


def _head(url: str, identifier: int, token: str | None, notifications: Any) -> bytes:
    """The request as it stands on the wire."""
    parts = urlsplit(url)
    body = json.dumps(request("subscriptions/listen", {"notifications": notifications}, identifier=identifier)).encode()
    credential = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n{credential}"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\n"
        f"Mcp-Method: subscriptions/listen\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
