"""A request's head has its whole time from its first byte, however steadily its bytes come, by either HTTP."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import anyio
import pytest
from anyio.abc import SocketStream
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded
from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, SettingsFrame

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.hypercorn.lifetimes import Waits
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig
from tests.kit.h2_bytes import PREFACE
from tests.kit.http2 import HEAD, Peer
from tests.kit.waiting import until
from tests.unit.edge.http_server import StubApplication, connect, serving

pytestmark = pytest.mark.usefixtures("jumping")

TIME: Final = 5.0
"""Seconds that a head may take here; the clock jumps over them."""
SLACK: Final = 10.0
"""Seconds that a busy machine may need more."""
REQUEST: Final = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"
SETTINGS: Final = SettingsFrame(0, settings=dict.fromkeys(range(1, 20), 1)).serialize()


async def trickle(stream: SocketStream, data: bytes, *, every: float = TIME / 10) -> None:
    """Send bytes one by one, for as long as anybody takes them."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        for byte in data:
            await stream.send(bytes([byte]))
            await anyio.sleep(every)


async def rest(stream: SocketStream) -> bytes:
    """All that comes until the server closes."""
    came = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            came += await stream.receive()
    return came


async def ended_while_sending(config: EdgeConfig, first: bytes, slowly: bytes) -> tuple[bytes, float]:
    """The bytes that a client got that sends the rest slowly, and the seconds until the server closed."""
    async with await connect(config) as stream:
        await stream.send(first)
        started = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle, stream, slowly)
            came = await rest(stream)
            tasks.cancel_scope.cancel()
        return came, time.monotonic() - started


@pytest.mark.rule("T25")
async def test_a_head_that_comes_byte_by_byte_is_408_when_its_time_is_over() -> None:
    async with serving(StubApplication(), head_timeout=TIME) as config:
        came, took = await ended_while_sending(config, b"GET / HTTP/1.1\r\nhost: a\r\n", b"x: " + b"y" * 1000)
    assert came.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in came
    assert TIME * 0.9 < took < TIME + SLACK


@pytest.mark.rule("N28")
def test_a_head_has_ten_seconds() -> None:
    assert EdgeSettings().head_timeout == 10


@pytest.mark.rule("T25")
async def test_a_connection_that_sends_nothing_is_closed_without_a_word() -> None:
    async with serving(StubApplication(), head_timeout=TIME) as config, await connect(config) as stream:
        with anyio.fail_after(TIME + SLACK):
            assert await rest(stream) == b""


@pytest.mark.rule("T25")
async def test_a_later_head_has_its_time_from_its_first_byte() -> None:
    """Between two requests a connection may be silent for much longer."""
    async with serving(StubApplication(), head_timeout=TIME) as config, await connect(config) as stream:
        await stream.send(REQUEST)
        assert (await stream.receive()).endswith(b"{}")
        await anyio.sleep(TIME * 2)
        await stream.send(REQUEST)
        assert (await stream.receive()).endswith(b"{}")
        started = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle, stream, REQUEST[:-2] + b"x: " + b"y" * 1000)
            came = await rest(stream)
            tasks.cancel_scope.cancel()
    assert came.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started < TIME + SLACK


@pytest.mark.rule("T25")
async def test_a_head_behind_a_request_has_its_time_from_that_ones_answer() -> None:
    """It is not read while the request is served, which is not its client's fault."""
    application = StubApplication()
    async with serving(application, head_timeout=TIME) as config, await connect(config) as stream:
        await stream.send(REQUEST.replace(b"/x", b"/slow") + REQUEST[:10])
        await until(lambda: application.begun)
        await anyio.sleep(TIME * 2)
        application.may_answer.set()
        assert (await stream.receive()).endswith(b"{}")
        await stream.send(REQUEST[10:])
        assert (await stream.receive()).endswith(b"{}")
        await stream.send(REQUEST.replace(b"/x", b"/slow") + REQUEST[:10])
        assert (await stream.receive()).endswith(b"{}")
        assert (await rest(stream)).startswith(b"HTTP/1.1 408")


@pytest.mark.rule("T25")
async def test_requests_sent_together_leave_a_connection_that_is_idle() -> None:
    async with serving(StubApplication(), head_timeout=TIME) as config, await connect(config) as stream:
        await stream.send(REQUEST * 5)
        came = b""
        while came.count(b"HTTP/1.1 200") < 5:
            came += await stream.receive()
        await anyio.sleep(TIME * 2)
        await stream.send(REQUEST)
        assert (await stream.receive()).endswith(b"{}")


@pytest.mark.rule("T25")
async def test_a_preface_of_http2_has_the_time_of_a_head() -> None:
    async with serving(StubApplication(), head_timeout=TIME) as config:
        for first, slowly in ((b"", PREFACE), (PREFACE, SETTINGS), (PREFACE[:20], b"")):
            _, took = await ended_while_sending(config, first, slowly)
            assert took < TIME * 2 + SLACK


def opened() -> tuple[H2Connection, bytes]:
    """The state of a client's connection, and what it sends first."""
    http = H2Connection()
    http.initiate_connection()
    return http, http.data_to_send()


def head(*flags: str, stream: int = 1) -> bytes:
    """A request's HEADERS frame."""
    frame = HeadersFrame(stream, H2Connection().encoder.encode(list(HEAD.items())))
    for flag in flags:
        frame.flags.add(flag)
    return frame.serialize()


def continuations() -> bytes:
    """Parts of a header block without end, which are themselves well-formed."""
    return b"".join(ContinuationFrame(1, b"").serialize() for _ in range(50))


@pytest.mark.rule("T25")
async def test_a_header_block_of_http2_has_its_time_over_all_its_frames() -> None:
    _, greeting = opened()
    async with serving(StubApplication(), head_timeout=TIME) as config:
        _, took = await ended_while_sending(config, greeting + head("END_STREAM"), continuations())
        assert took < TIME + SLACK
        _, took = await ended_while_sending(config, greeting + head("END_STREAM")[:12], b"")
        assert took < TIME + SLACK


@pytest.mark.rule("T25")
async def test_a_late_head_ends_a_connection_of_http2_that_serves_another_request() -> None:
    """No frame of any other request can pass it."""
    application = StubApplication()
    async with serving(application, head_timeout=TIME) as config, await connect(config) as stream:
        peer = Peer(stream)
        peer.http.initiate_connection()
        await peer.request(1, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await until(lambda: application.begun)
        await anyio.sleep(TIME * 2)
        await peer.say(head("END_STREAM", stream=3))
        with anyio.fail_after(TIME + SLACK):
            events = await peer.until_closed()
        assert [event for event in events if isinstance(event, ConnectionTerminated)]
        application.may_answer.set()


@pytest.mark.rule("T25")
async def test_a_slow_body_of_http2_is_no_late_head() -> None:
    """Its frames are often cut; a body's time is another one."""
    async with serving(StubApplication(), head_timeout=TIME) as config, await connect(config) as stream:
        peer = Peer(stream)
        peer.http.initiate_connection()
        await peer.request(1, ends=False)
        body = DataFrame(1, b"x" * 40)
        body.flags.add("END_STREAM")
        await trickle(stream, body.serialize(), every=TIME * 3 / 49)
        await peer.until(StreamEnded, 1)


async def test_a_body_that_comes_byte_by_byte_is_408_when_its_time_is_over() -> None:
    """By either HTTP: its whole time counts, as that of a head."""
    post = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"
    async with serving(StubApplication(timeout=TIME)) as config:
        came, took = await ended_while_sending(config, post, b"y" * 1000)
        assert came.startswith(b"HTTP/1.1 408")
        assert took < TIME + SLACK
        async with await connect(config) as stream:
            peer = Peer(stream)
            peer.http.initiate_connection()
            await peer.request(1, ends=False)
            started = time.monotonic()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(trickle, stream, DataFrame(1, b"y").serialize() * 100)
                answer = await peer.until(ResponseReceived, 1)
                tasks.cancel_scope.cancel()
            assert dict(answer.headers)[b":status"] == b"408"
            assert time.monotonic() - started < TIME + SLACK


@pytest.mark.rule("T25")
async def test_an_http2_connection_that_never_asks_is_closed_when_idle_too_long() -> None:
    """A preface used to end the time that a connection may be idle."""
    _, greeting = opened()
    async with serving(StubApplication()) as config:
        config.waits = Waits(keep_alive=TIME, head=60.0)
        _, took = await ended_while_sending(config, greeting, b"")
    assert took < TIME + SLACK
