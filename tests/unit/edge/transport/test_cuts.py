"""A half-written frame whose right ends is cut; one whose right was found unchanged goes on (X54)."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset
from hypercorn.asyncio.worker_context import EventWrapper

from mcpfleet.edge.transport.grant import Frame, Grant
from mcpfleet.edge.transport.http_exchange import ClientStalled, HttpExchange
from mcpfleet.edge.transport.hypercorn.connection import CONNECTION
from mcpfleet.edge.transport.hypercorn.http2.stream import SendBuffer
from tests.kit.http2 import Peer
from tests.kit.waiting import until
from tests.unit.edge.http_server import serving

WINDOW = 65_535
"""Bytes that an HTTP/2 client takes of a stream at first."""
REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


class Streaming:
    """Sends one large frame, or small ones until the client's buffers are full, and then a last part."""

    def __init__(self, size: int, most: int) -> None:
        self._size, self._most = size, most
        self.grant = Grant()
        self.dropped = 0
        self.sent = 0
        """Bytes of frames that were begun."""
        self.connection: Any = None
        self.is_over = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=20.0)
        self.connection = scope["state"][CONNECTION]
        await client.read_body(1000, 5.0)
        await client.open_stream()
        try:
            for _ in range(self._most):
                data = b"*" * self._size
                self.sent += len(data)
                await client.send_part(data, Frame(data, self.grant, self._note_dropped))
            await client.send_part(b"last")
            await client.close_stream()
        except ClientStalled:
            pass
        finally:
            self.is_over = True

    def _note_dropped(self) -> None:
        self.dropped += 1

    @property
    def waits_in_transport(self) -> int:
        size: int = self.connection.writer.transport.get_write_buffer_size() if self.connection is not None else 0
        return size


async def everything(stream: SocketStream) -> bytes:
    """Read until the connection ends, however it does."""
    read = bytearray()
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.move_on_after(10):
        while True:
            read += await stream.receive()
    return bytes(read)


@asynccontextmanager
async def stalled(application: Streaming) -> AsyncIterator[SocketStream]:
    """A client of HTTP/1.1 that has stopped reading in the middle of a frame."""
    async with serving(application) as config:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await anyio.to_thread.run_sync(raw.connect, config.listening.getsockname()[:2])
        raw.setblocking(False)
        async with await SocketStream.from_socket(raw) as client:
            await client.send(REQUEST)
            await until(lambda: application.waits_in_transport)
            yield client


@pytest.mark.rule("X54")
async def test_http1_no_byte_follows_that_the_socket_had_not_been_given() -> None:
    application = Streaming(60_000, 200)
    async with stalled(application) as client:
        application.grant.end()
        application.grant.refuse()
        connection = application.connection
        given = connection._given - application.waits_in_transport
        await until(connection.writer.transport.is_closing)
        read = await everything(client)
    assert len(read) <= given
    assert b"last" not in read
    assert application.dropped >= 1


@pytest.mark.rule("X54")
async def test_http1_an_unchanged_renewal_cuts_nothing() -> None:
    application = Streaming(60_000, 200)
    async with stalled(application) as client:
        application.grant.end()
        application.grant.confirm()
        read = bytearray()
        while not read.endswith(b"0\r\n\r\n"):
            read += await client.receive()
    assert b"last" in read
    assert read.count(b"*") == application.sent - 60_000 * application.dropped


@asynccontextmanager
async def half_read(
    application: Streaming, open_stream: Callable[[Any], Awaitable[SocketStream]]
) -> AsyncIterator[Peer]:
    """A client of HTTP/2 that has read a window's bytes of a larger frame."""
    async with serving(application) as config, await open_stream(config) as stream:
        peer = Peer(stream)
        peer.http.initiate_connection()
        await peer.request(1, ends=True)
        await peer.until(ResponseReceived, 1)
        while received(peer) < WINDOW:
            await peer.receive()
        yield peer


def received(peer: Peer) -> int:
    """The bytes of the answer that have come."""
    return sum(len(event.data) for event in peer.events if isinstance(event, DataReceived))


async def plain(config: Any) -> SocketStream:
    return await anyio.connect_tcp(*config.listening.getsockname()[:2])


@pytest.mark.rule("X54")
async def test_http2_the_stream_of_a_half_written_frame_is_reset_and_its_connection_goes_on() -> None:
    application = Streaming(100_000, 1)
    async with half_read(application, plain) as peer:
        application.grant.end()
        peer.http.increment_flow_control_window(WINDOW)
        peer.http.increment_flow_control_window(WINDOW, 1)
        await peer.send()
        peer.http.ping(b"12345678")
        await peer.send()
        await peer.receive()  # the ping's answer: the frame waits for its outcome meanwhile
        assert received(peer) == WINDOW
        application.grant.refuse()
        reset = await peer.until(StreamReset, 1)
        assert reset.error_code == 8
        assert received(peer) == WINDOW
        await until(lambda: application.is_over)
        assert application.dropped == 1
        peer.events.clear()
        await peer.request(3, ends=True)
        await peer.until(ResponseReceived, 3)


@pytest.mark.rule("X54")
async def test_http2_an_unchanged_renewal_cuts_nothing() -> None:
    application = Streaming(100_000, 1)
    async with half_read(application, plain) as peer:
        application.grant.end()
        application.grant.confirm()
        peer.http.increment_flow_control_window(WINDOW)
        peer.http.increment_flow_control_window(WINDOW, 1)
        await peer.send()
        await peer.until(StreamEnded, 1)
        assert received(peer) == 100_000 + len(b"last")
    assert application.dropped == 0


@pytest.mark.rule("X54")
async def test_a_buffer_releases_the_bytes_of_a_cut_frame_once() -> None:
    outcomes: list[None] = []
    buffer = SendBuffer(EventWrapper, on_outcome=lambda: outcomes.append(None))
    grant, dropped = Grant(), list[str]()
    for data in (b"aaa", b"bbb"):
        await buffer.push(data, Frame(data, grant, lambda data=data: dropped.append(data.decode())))  # type: ignore[misc]
    assert await buffer.pop(1) == b"a"
    grant.refuse()
    assert (buffer.is_cut, len(outcomes)) == (True, 1)
    assert await buffer.pop(9) == b""
    for _ in range(2):
        await buffer.close()
    assert sorted(dropped) == ["aaa", "bbb"]
    assert len(buffer.buffer) == 0
    grant.confirm()
    assert len(outcomes) == 1
