"""A flood of HTTP/2 ends its own connection (T26), and no honest client's."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from h2.errors import ErrorCodes
from h2.exceptions import FlowControlError
from h2.stream import H2Stream
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame

from mcpfleet.edge.transport.hypercorn.http2 import budget
from mcpfleet.edge.transport.hypercorn.http2.budget import Budget
from mcpfleet.edge.transport.hypercorn.http2.protocol import Http2
from mcpfleet.edge.transport.hypercorn.http2.state import ServerState
from mcpfleet.edge.transport.hypercorn.lifetimes import MultiplexedRequests
from tests.kit import h2_bytes as h2
from tests.kit.h2_bytes import CANCEL, END_HEADERS, END_STREAM, block, frame, head
from tests.kit.h2_floods import CALM, FLOODS, send
from tests.kit.http2 import Frames, Peer
from tests.kit.waiting import until
from tests.unit.edge.http_server import StubApplication, connect, serving

WHOLE = END_HEADERS | END_STREAM
GET = block(head(b"GET", b"/"))
WAITS = block(head(b"GET", b"/waits"))
STREAMS = range(1, 2**20, 2)


@pytest.mark.rule("T26")
async def test_a_flood_ends_its_connection_and_nothing_of_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told why; those that are wrong besides are told that."""
    # Time brings a budget back, and a busy machine has more of it: here none passes.
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: 0.0))
    application, told = StubApplication(), {}
    async with serving(application, within=200) as config:  # seconds of work, and a machine may have others
        address = config.listening.getsockname()[:2]
        for name in FLOODS:
            size = SIZE * CHEAP if name in SKIPPED else SIZE
            sending = partial(send, address, FLOODS[name], size, silence=100)  # each is told something in the end
            told[name] = (await anyio.to_thread.run_sync(sending)).told
            await until(lambda: application.running == 0, within=60)
        await until(lambda: not alive(Http2, H2Stream), within=60)
    assert told == {name: WRONG.get(name, CALM) for name in FLOODS}
    assert len(application.begun) < 500 * len(FLOODS)


SIZE = 1_000_000
"""Bytes of a flood."""
SKIPPED = ("PRIORITY", "PRIORITY of one stream", "PRIORITY among open streams", "unknown frames", "ALTSVC")
CHEAP = 4
"""Times as much of frames that are read past."""
WRONG = {
    "window of 0": ErrorCodes.PROTOCOL_ERROR,
    "CONTINUATION": ErrorCodes.PROTOCOL_ERROR,
    "PUSH_PROMISE": ErrorCodes.PROTOCOL_ERROR,
    "sizes of the table": ErrorCodes.COMPRESSION_ERROR,
    "GOAWAY with an error": None,
}
"""The first frame of these may not be, and to a client that gives up nothing is said."""


def alive(*kinds: type) -> list[object]:
    """All objects of a class that this process still holds."""
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, kinds)]


async def begin(stream: SocketStream, settings: bytes = b"") -> tuple[Peer, Frames]:
    """Begin to speak HTTP/2."""
    peer = Peer(stream)
    await peer.say(h2.PREFACE + frame(h2.SETTINGS, 0, 0, settings))
    return peer, Frames(peer)


@pytest.mark.rule("T26")
@pytest.mark.usefixtures("jumping")
async def test_what_follows_the_end_is_dropped_and_the_connection_closes() -> None:
    async with serving(StubApplication()) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        await peer.say(frame(h2.PING, 0, 0, bytes(8)) * 50_000)
        told = await frames.until(GoAwayFrame, 0)
        await peer.say(frame(h2.HEADERS, WHOLE, 1, GET))
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await frames.until(HeadersFrame, 1)
    assert told.error_code == ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.rule("T26")
async def test_its_requests_end_with_a_flooded_connection() -> None:
    application = StubApplication()
    async with serving(application) as config, await connect(config) as stream:
        peer, _ = await begin(stream)
        await peer.say(b"".join(frame(h2.HEADERS, WHOLE, number, WAITS) for number in STREAMS[:20]))
        await until(lambda: application.running == 20)
        await peer.say(frame(h2.PING, 0, 0, bytes(8)) * 50_000)
        await until(lambda: application.running == 0)


def update(stream: int, by: int) -> bytes:
    """More window."""
    return frame(h2.WINDOW_UPDATE, 0, stream, struct.pack(">L", by))


async def answered(frames: Frames, stream: int) -> None:
    """Wait for the end of an answer."""
    while "END_STREAM" not in (await frames.until(DataFrame, stream)).flags:
        pass


@pytest.mark.rule("T26")
async def test_a_client_that_updates_windows_for_each_frame_and_pings_is_served() -> None:
    """Some libraries do: twice a frame, and a PING to measure how far the server is."""
    async with serving(StubApplication()) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        for number in STREAMS[:1000]:
            await peer.say(frame(h2.HEADERS, END_HEADERS, number, GET) + frame(h2.DATA, END_STREAM, number, b"{}"))
            await answered(frames, number)
            await peer.say((update(0, 2) + update(number, 2)) * 3 + frame(h2.PING, 0, 0, bytes(8)))


@pytest.mark.rule("T26")
async def test_all_clients_of_a_proxy_may_leave_at_once_and_others_come() -> None:
    application = StubApplication()
    async with serving(application) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        await peer.say(b"".join(frame(h2.HEADERS, WHOLE, number, WAITS) for number in STREAMS[:500]))
        await until(lambda: application.running == 500)
        await peer.say(b"".join(frame(h2.RST_STREAM, 0, number, CANCEL) for number in STREAMS[:500]))
        await until(lambda: application.running == 0)
        await peer.say(frame(h2.HEADERS, WHOLE, 2001, GET))
        await answered(frames, 2001)


@pytest.mark.rule("T26")
async def test_many_requests_with_large_tokens_at_once_are_served() -> None:
    application = StubApplication()
    token = block([(b"authorization", b"Bearer " + b"x" * 4000)])
    async with serving(application) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        await peer.say(b"".join(frame(h2.HEADERS, WHOLE, number, GET + token) for number in STREAMS[:500]))
        for number in STREAMS[:500:50]:
            await answered(frames, number)
        await until(lambda: len(application.begun) == 500)


@pytest.mark.rule("T26")
async def test_a_large_body_in_parts_of_usual_size_is_taken() -> None:
    async with serving(StubApplication()) as config, await connect(config) as stream:
        peer = Peer(stream)
        peer.http.initiate_connection()
        await peer.request(1, head(path=b"/"), ends=False)
        for _ in range(2000):
            while peer.http.local_flow_control_window(1) < 1400:
                await peer.receive()
            peer.http.send_data(1, b"x" * 1400)
            await peer.send()
        peer.http.end_stream(1)
        await peer.send()
        frames = Frames(peer)
        await answered(frames, 1)


@pytest.mark.rule("T26")
async def test_a_client_that_has_small_pieces_sent_to_it_is_ended() -> None:
    """A window of a byte makes a frame of each byte of an answer."""
    async with serving(StubApplication(b"x" * 60_000)) as config, await connect(config) as stream:
        peer, frames = await begin(stream, struct.pack(">HL", 4, 0))
        await peer.say(frame(h2.HEADERS, WHOLE, 1, GET))
        await frames.until(HeadersFrame, 1)
        await peer.say(update(1, 1) * 20_000)
        told = await frames.until(GoAwayFrame, 0)
    assert told.error_code == ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.rule("T26")
@pytest.mark.parametrize("window", ["stream", "connection"])
async def test_a_stream_whose_client_gives_no_window_is_reset_in_time(window: str) -> None:
    application = StubApplication(b"x" * (10 if window == "stream" else 70_000))
    async with serving(application) as config, await connect(config) as stream:
        config.write_timeout = 0.3
        peer, frames = await begin(stream, struct.pack(">HL", 4, 0 if window == "stream" else 2**20))
        await peer.say(frame(h2.HEADERS, WHOLE, 1, GET))
        reset = await frames.until(RstStreamFrame, 1)
        await until(lambda: application.running == 0)
        [connection] = [each for each in alive(Http2) if isinstance(each, Http2)]
        assert not connection.connection.streams
        assert not connection.stream_buffers
    assert reset.error_code == ErrorCodes.CANCEL


@pytest.mark.rule("T28")
@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_handler_whose_answer_waits_for_a_window_ends_with_its_client(size: int) -> None:
    """Nothing else would end it, and its connection with it."""
    application = StubApplication(b"x" * size)
    async with serving(application) as config:
        async with await connect(config) as stream:
            peer, frames = await begin(stream, struct.pack(">HL", 4, 0))
            await peer.say(frame(h2.HEADERS, WHOLE, 1, GET))
            await frames.until(HeadersFrame, 1)
        await until(lambda: application.running == 0)
        await until(lambda: not alive(Http2))


@pytest.mark.rule("T28")
async def test_a_stream_counts_until_its_handler_has_ended() -> None:
    """Else a client has as many handlers run as it can open and reset streams."""
    application = StubApplication()
    deaf = block(head(b"GET", b"/deaf"))
    async with serving(application) as config:
        config.h2_max_concurrent_streams = 10
        async with await connect(config) as stream:
            peer, frames = await begin(stream)
            await peer.say(b"".join(frame(h2.HEADERS, WHOLE, number, deaf) for number in STREAMS[:10]))
            await until(lambda: application.running == 10)
            await peer.say(b"".join(frame(h2.RST_STREAM, 0, number, CANCEL) for number in STREAMS[:10]))
            await peer.say(frame(h2.HEADERS, WHOLE, 101, GET))
            refused = await frames.until(RstStreamFrame, 101)
            assert (refused.error_code, len(application.begun)) == (ErrorCodes.REFUSED_STREAM, 10)
            application.may_answer.set()
            await until(lambda: application.running == 0, within=60)
            await peer.say(frame(h2.HEADERS, WHOLE, 103, GET))
            await answered(frames, 103)


@pytest.mark.rule("T28")
async def test_a_stream_beyond_the_limit_is_refused_and_the_others_live() -> None:
    application = StubApplication()
    async with serving(application) as config:
        config.h2_max_concurrent_streams = 3
        async with await connect(config) as stream:
            peer, frames = await begin(stream)
            await peer.say(b"".join(frame(h2.HEADERS, END_HEADERS, number, GET) for number in STREAMS[:4]))
            refused = await frames.until(RstStreamFrame, 7)
            await peer.say(frame(h2.DATA, END_STREAM, 1))
            await answered(frames, 1)
            await peer.say(frame(h2.HEADERS, WHOLE, 9, GET))
            await answered(frames, 9)
    assert refused.error_code == ErrorCodes.REFUSED_STREAM


@pytest.mark.rule("T28")
async def test_a_request_that_is_cancelled_in_the_same_breath_has_no_handler() -> None:
    application = StubApplication()
    async with serving(application) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        await peer.say(frame(h2.PING, 0, 0, bytes(8)))
        await frames.until(PingFrame, 0)
        await peer.say(frame(h2.HEADERS, WHOLE, 1, WAITS) + frame(h2.RST_STREAM, 0, 1, CANCEL))
        await peer.say(frame(h2.HEADERS, WHOLE, 3, GET))
        await answered(frames, 3)
        assert len(application.begun) == 1


@pytest.mark.rule("T28")
async def test_a_connection_of_many_requests_keeps_nothing_of_them() -> None:
    async with serving(StubApplication()) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        for number in STREAMS[:2000]:
            await peer.say(frame(h2.HEADERS, WHOLE, number, GET))
            await answered(frames, number)
        [connection] = [each for each in alive(Http2) if isinstance(each, Http2)]
        await until(lambda: not connection.connection.streams)
        assert (connection.stream_buffers, connection.streams, connection._handlers) == ({}, {}, set())
        assert len(connection.connection._closed_streams) <= 1000


class Broken:
    """Ends in the midst of its answer."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.rule("T28")
async def test_an_answer_that_is_left_without_an_end_is_reset() -> None:
    """Else its client waits for the rest, and its stream counts for good."""
    async with serving(Broken()) as config, await connect(config) as stream:
        peer, frames = await begin(stream)
        await peer.say(frame(h2.HEADERS, WHOLE, 1, GET))
        reset = await frames.until(RstStreamFrame, 1)
    assert reset.error_code == ErrorCodes.INTERNAL_ERROR


def state() -> ServerState:
    """The state of a connection that has begun."""
    requests = MultiplexedRequests(1000, lambda: False)
    begun = ServerState(Budget(), requests=requests, max_frame_size=16_384, max_streams=10, max_headers=65_536)
    begun.initiate_connection()
    begun.data_to_send()
    begun.receive_data(h2.PREFACE + frame(h2.SETTINGS, 0, 0))
    begun.data_to_send()
    return begun


def take(begun: ServerState, data: bytes) -> None:
    """Take what arrives, however many turns that are."""
    begun.receive_data(data)
    while begun.frames.is_cut:
        begun.frames.begin_turn()
        begun.receive_data(b"")


def entry(setting: int, value: int) -> bytes:
    """A SETTINGS frame."""
    return frame(h2.SETTINGS, 0, 0, struct.pack(">HL", setting, value))


@pytest.mark.rule("T26")
def test_a_client_cannot_have_us_remember_more_headers_than_by_default() -> None:
    """Each header of each answer is looked for among them all."""
    begun = state()
    begun.receive_data(entry(1, 2**32 - 1) + frame(h2.HEADERS, WHOLE, 1, GET))
    begun.send_headers(1, [(b":status", b"200"), *((b"a%d" % number, b"x" * 50) for number in range(500))])
    assert begun.encoder.header_table_size == 4096
    assert len(begun.encoder.header_table.dynamic_entries) < 60


@pytest.mark.rule("T27")
def test_a_body_beyond_its_window_ends_the_connection() -> None:
    begun = state()
    take(begun, frame(h2.HEADERS, END_HEADERS, 1, GET))
    with pytest.raises(FlowControlError):
        take(begun, frame(h2.DATA, 0, 1, bytes(16_384)) * 4)


@pytest.mark.rule("T26")
def test_changes_of_the_table_are_told_once() -> None:
    """The smallest and the last, however many there were (RFC 7541, 4.2)."""
    begun = state()
    begun.receive_data(
        b"".join(entry(1, size) for size in (100, 0, 50, 50, 4096, 70)) + frame(h2.HEADERS, WHOLE, 1, GET)
    )
    begun.data_to_send()
    begun.send_headers(1, [(b":status", b"200")])
    [frames] = [bytes(found.data) for found in read(begun.data_to_send()) if isinstance(found, HeadersFrame)]
    assert frames == b"\x20\x3f\x27\x88"


@pytest.mark.rule("T26")
def test_settings_that_nobody_knows_are_not_kept() -> None:
    begun = state()
    take(begun, b"".join(entry(setting, 1) for setting in chain(range(100, 400), (8,))))
    assert set(begun.remote_settings) <= set(range(1, 9))
    assert len([found for found in read(begun.data_to_send()) if isinstance(found, SettingsFrame)]) == 301


def read(data: bytes) -> Iterator[Frame]:
    """The frames of what was sent."""
    while data:
        found, length = Frame.parse_frame_header(memoryview(data[:9]))
        found.parse_body(memoryview(data[9 : 9 + length]))
        data = data[9 + length :]
        yield found
