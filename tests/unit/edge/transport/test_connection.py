"""The cost of a connection whose client leaves early, uploads what nobody reads, or breaks HTTP/2."""

from __future__ import annotations

import logging
import socket
import struct
import tracemalloc
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from h2.connection import H2Connection
from psutil import Process

from mcpfleet.edge.transport.http_exchange import ClientStalled, HttpExchange
from mcpfleet.edge.transport.hypercorn.lifetimes import Waits
from tests.kit.waiting import until
from tests.unit.edge.http_server import StubApplication, connect, serving

pytestmark = pytest.mark.usefixtures("jumping")

UPLOAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8000000\r\n\r\n"


async def test_a_connection_that_its_client_closes_is_over_at_once() -> None:
    """Balancers that look whether a port is open would use up an edge's descriptors."""
    application = StubApplication(status=503, holds_unread=True)
    application.may_answer.set()
    async with serving(application) as config:
        before = descriptors()
        for _ in range(50):
            async with await connect(config) as stream:
                await stream.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            async with await connect(config):
                pass
        await until(lambda: descriptors() <= before, within=3)


REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def test_a_connection_is_kept_between_requests_and_closed_when_idle_too_long() -> None:
    application = StubApplication(status=503, holds_unread=True)
    application.may_answer.set()
    async with serving(application) as config:
        config.waits = Waits(keep_alive=0.5, head=5.0)
        async with await connect(config) as stream:
            for _ in range(4):
                await stream.send(REQUEST)
                assert (await stream.receive()).endswith(b"{}")
                await anyio.sleep(0.2)  # together longer than the idle time
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()


async def test_idle_connections_are_closed_at_once_when_the_server_ends() -> None:
    application = StubApplication(status=503, holds_unread=True)
    application.may_answer.set()
    async with serving(application) as config:
        stream = await connect(config)
        await stream.send(REQUEST)
        await stream.receive()
    async with stream:
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_an_answer_leaves_in_one_piece() -> None:
    """Head and body in one write: each write is a call of the system, and on the way a packet."""
    application = StubApplication(status=503, holds_unread=True)
    application.may_answer.set()
    async with serving(application) as config, await connect(config) as stream:
        await stream.send(REQUEST)
        assert (await stream.receive()).endswith(b"\r\n\r\n{}")


def descriptors() -> int:
    """How many this process has open."""
    return int(Process().num_fds())


async def test_an_answer_before_the_body_has_arrived_ends_request_and_connection() -> None:
    """The server's queue of body parts is full by then, and the news that the request is over has to go through it."""
    application = StubApplication(status=503, holds_unread=True)
    async with serving(application) as config, await connect(config) as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(upload, stream)
        await until(lambda: application.running)
        await anyio.wait_all_tasks_blocked()
        application.may_answer.set()
        answer = b""
        try:
            while part := await stream.receive():
                answer += part
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        tasks.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"connection: close" in answer
    assert application.running == 0


@pytest.mark.rule("T20")
async def test_a_client_that_closes_its_side_has_left() -> None:
    """Nobody can tell it from one that vanished; so a client keeps its side open until it has its answer."""
    application = Patient()
    async with serving(application) as config, await connect(config) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        await until(lambda: application.is_waiting)
        await stream.send_eof()
        await until(lambda: application.has_left)


class Patient:
    """An application that reads a request, and answers nobody who has left."""

    def __init__(self) -> None:
        self.is_waiting = self.has_left = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=5.0)
        await client.read_body(100, 5.0)
        self.is_waiting = True
        await client.wait_gone()
        self.has_left = True


async def upload(stream: SocketStream) -> None:
    """Send a body until nobody takes it."""
    try:
        await stream.send(UPLOAD)
        for _ in range(79):
            await stream.send(b"x" * 100_000)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


@pytest.mark.rule("T20")
@pytest.mark.parametrize("rest", [b"\r\n", b"G", REQUEST, REQUEST * 200], ids=["line", "byte", "request", "many"])
@pytest.mark.parametrize("resets", [False, True])
async def test_a_client_has_left_whatever_it_sent_behind_its_request(rest: bytes, *, resets: bool) -> None:
    """Unread bytes must not hide that nobody waits for the answer; then the server is done with it."""
    waiting, gone = anyio.Event(), anyio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=5.0)
        await client.open_stream()
        waiting.set()
        await client.wait_gone()
        gone.set()

    async with serving(application) as config:
        before = descriptors()
        stream = await connect(config)
        await stream.send(REQUEST + rest)
        await waiting.wait()
        if resets:
            linger = struct.pack("ii", 1, 0)
            stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await stream.aclose()
        with anyio.fail_after(3):
            await gone.wait()
        await until(lambda: descriptors() <= before, within=3)


async def test_a_client_that_opens_streams_without_end_costs_a_line_and_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hypercorn.error")
    application = StubApplication(status=503, holds_unread=True)
    async with serving(application) as config, await connect(config) as stream:
        peer = H2Connection()
        peer.initiate_connection()
        await stream.send(peer.data_to_send())
        head = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
        try:
            for number in range(1, 6001, 2):
                peer.send_headers(number, head, end_stream=True)
                peer.reset_stream(number)
                await stream.send(peer.data_to_send())
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        application.may_answer.set()
    [line] = [line for line in caplog.records if "HTTP/2" in line.getMessage()]
    assert line.exc_info is None


class Streaming:
    """An application that streams parts of all sizes; the large ones make a slow client's connection wait."""

    def __init__(self, parts: list[bytes], *, write_timeout: float = 5.0) -> None:
        self.parts = parts
        self.write_timeout = write_timeout
        self.has_stalled = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=self.write_timeout)
        await client.read_body(1000, 5.0)
        await client.open_stream()
        try:
            for part in self.parts:
                await client.send_part(part)
        except ClientStalled:
            self.has_stalled.set()
            raise
        await client.close_stream()


PARTS = [b"%d " % number * (50_000 if number % 50 == 0 else 1) for number in range(1, 501)]


@pytest.mark.parametrize("http2", [False, True])
async def test_parts_arrive_whole_and_in_order_however_slowly_they_are_read(http2: bool) -> None:
    async with (
        serving(Streaming(PARTS)) as config,
        httpx2.AsyncClient(http1=not http2, http2=http2, verify=False, timeout=10) as http,
        http.stream("POST", config.url("/"), content=b"{}") as response,
    ):
        assert response.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        came = []
        async for piece in response.aiter_raw():
            came.append(piece)
            if len(came) % 20 == 0:
                await anyio.sleep(0.01)
    assert b"".join(came) == b"".join(PARTS)


@pytest.mark.rule("N5")
async def test_a_client_that_does_not_read_parts_is_given_up() -> None:
    application = Streaming([b"x" * 50_000] * 1000, write_timeout=0.5)
    async with serving(application) as config:
        stream = await connect(config)
        await stream.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        with anyio.fail_after(10):
            await application.has_stalled.wait()
        await stream.aclose()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_large_answer_is_in_memory_once_while_its_client_does_not_read(streams: bool) -> None:
    """Else the room that an edge gives to results would be a third of what they take."""
    size = 32 * 1024 * 1024
    application = Large(size, streams=streams)
    async with serving(application) as config, await connect(config) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        await until(lambda: application.is_sending)
        tracemalloc.start()
        try:
            application.may_send.set()
            came = len(await stream.receive())
            await anyio.wait_all_tasks_blocked()
            assert tracemalloc.get_traced_memory()[1] < size / 16
        finally:
            tracemalloc.stop()
        while came < size:
            came += len(await stream.receive())


class Large:
    """An application that answers with one large body, made before anybody counts."""

    def __init__(self, size: int, *, streams: bool) -> None:
        self.body, self.streams = b"x" * size, streams
        self.is_sending, self.may_send = False, anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=5.0)
        await client.read_body(1000, 5.0)
        self.is_sending = True
        await self.may_send.wait()
        if not self.streams:
            await client.answer(200, self.body)
            return
        await client.open_stream()
        await client.send_part(self.body)
        await client.close_stream()
