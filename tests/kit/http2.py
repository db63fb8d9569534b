"""A client of HTTP/2 that sends whatever it is told to, and reads frame by frame where the library would not."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import SocketStream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event
from hyperframe.frame import Frame

HEAD = {b":method": b"POST", b":path": b"/", b":scheme": b"http", b":authority": b"a"}


class Peer:
    """A client that sends whatever it is told to."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        config = H2Configuration(
            header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.http = H2Connection(config)
        self.events: list[Event] = []

    async def send(self) -> None:
        """Send what was said to `http`."""
        await self._stream.send(self.http.data_to_send())

    async def until(self, kind: type[Event], stream: int) -> Any:
        """Wait for an event of a stream."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and event.stream_id == stream:  # type: ignore[attr-defined]
                    return event
            await self.receive()

    async def receive(self) -> None:
        """Take what comes next."""
        self.events.extend(self.http.receive_data(await self.take()))

    async def say(self, data: bytes) -> None:
        """Send bytes that are no HTTP/2."""
        await self._stream.send(data)

    async def close(self) -> None:
        """Leave without a word."""
        await self._stream.aclose()

    async def take(self) -> bytes:
        """Take the bytes that come next, past `http`."""
        return await self._stream.receive()

    async def until_closed(self) -> list[Event]:
        """Take what comes until the server closes."""
        with suppress(anyio.EndOfStream):
            while True:
                await self.receive()
        return self.events

    async def request(self, stream: int, head: Iterable[tuple[bytes, bytes]] = HEAD.items(), *, ends: bool) -> None:
        """Send a request's head."""
        self.http.send_headers(stream, list(head), end_stream=ends)
        await self.send()


class Frames:
    """A client that reads frames by itself: the library would take none after a GOAWAY."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._unread = b""
        self.seen: list[Frame] = []

    async def until(self, kind: type[Frame], stream: int) -> Any:
        """Wait for a frame of a stream, and leave out what came before it."""
        while True:
            while self.seen:
                frame = self.seen.pop(0)
                if isinstance(frame, kind) and frame.stream_id == stream:
                    return frame
            self._unread += await self._peer.take()
            self._split()

    def _split(self) -> None:
        while len(self._unread) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self._unread[:9]))
            if len(self._unread) < 9 + length:
                return
            frame.parse_body(memoryview(self._unread[9 : 9 + length]))
            self.seen.append(frame)
            self._unread = self._unread[9 + length :]
