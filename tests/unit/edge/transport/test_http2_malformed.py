"""A malformed request of HTTP/2 ends its stream; a fault of no request ends the connection (T27)."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, GoAwayFrame, RstStreamFrame

from tests.kit import h2_bytes as h2
from tests.kit.h2_bytes import END_HEADERS, END_STREAM, block, frame, head
from tests.kit.http2 import Frames, Peer
from tests.kit.waiting import until
from tests.unit.edge.http_server import StubApplication, connect, serving

WHOLE = END_HEADERS | END_STREAM
GET = head(b"GET", b"/")
STREAMS = range(3, 2**20, 2)


@asynccontextmanager
async def talking(application: StubApplication) -> AsyncIterator[tuple[Peer, Frames]]:
    """A connection on which a slow request runs, as stream 1."""
    async with serving(application) as config, await connect(config) as stream:
        peer = Peer(stream)
        frames = Frames(peer)
        await peer.say(h2.PREFACE + frame(h2.SETTINGS, 0, 0))
        await peer.say(frame(h2.HEADERS, WHOLE, 1, block(head(b"GET", b"/slow"))))
        await until(lambda: application.whole == ["/slow"])
        yield peer, frames
        application.may_answer.set()


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    """The pseudo headers but one."""
    return [pair for pair in GET if pair[0] != name]


def instead(name: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    """The pseudo headers, one of them with another value."""
    return [(key, value if key == name else old) for key, old in GET]


PSEUDO = (b":method", b":scheme", b":path", b":authority")
HEADS = {
    **{f"no {name.decode()}": without(name) for name in PSEUDO},
    **{f"{name.decode()} twice": [*GET, (name, dict(GET)[name])] for name in PSEUDO},
    "an unknown pseudo header": [*GET, (b":odd", b"1")],
    "a response's pseudo header": [*GET, (b":status", b"200")],
    "a status of 1xx": [(b":status", b"100"), *GET],
    "a pseudo header after another": [*without(b":path"), (b"a", b"1"), (b":path", b"/")],
    "no headers": [],
    "an upper-case name": [*GET, (b"Accept", b"*/*")],
    "a name that is empty": [*GET, (b"", b"1")],
    "a name with a space": [*GET, (b"a b", b"1")],
    "a name with a colon": [*GET, (b"a:b", b"1")],
    "a name that is no ASCII": [*GET, ("é".encode(), b"1")],
    **{f"{byte!r} in a name": [*GET, (b"a" + byte + b"b", b"1")] for byte in (b"\r", b"\n", b"\0")},
    **{
        f"{byte!r} in a value": [*GET, (b"a", b"1" + byte + b"b: 2")]
        for byte in (b"\r\n", b"\r", b"\n", b"\0", b"\x7f")
    },
    **{f"{byte!r} at the end of a value": [*GET, (b"a", b"1" + byte)] for byte in (b" ", b"\t", b"\n")},
    **{f"{byte!r} at the start of a value": [*GET, (b"a", byte + b"1")] for byte in (b" ", b"\t")},
    **{
        f"{byte!r} in a path": instead(b":path", b"/a" + byte + b"b") for byte in (b"\r\n", b"\0", b" ", b"\t", b"\xc3")
    },
    **{f"{byte!r} in an authority": instead(b":authority", b"a" + byte) for byte in (b"\r\n", b"\0", b" ")},
    **{f"{byte!r} in a method": instead(b":method", b"GET" + byte) for byte in (b"\r\n", b"\0", b" ")},
    "connection": [*GET, (b"connection", b"close")],
    "keep-alive": [*GET, (b"keep-alive", b"5")],
    "proxy-connection": [*GET, (b"proxy-connection", b"close")],
    "transfer-encoding": [*GET, (b"transfer-encoding", b"chunked")],
    "upgrade": [*GET, (b"upgrade", b"h2c")],
    "te that is not trailers": [*GET, (b"te", b"gzip")],
    "a length that is no number": [*GET, (b"content-length", b"x")],
    "a length below zero": [*GET, (b"content-length", b"-1")],
    "a length of 5,000 digits": [*GET, (b"content-length", b"1" * 5000)],
    "two lengths": [*GET, (b"content-length", b"0"), (b"content-length", b"1")],
    "a length without a body": [*GET, (b"content-length", b"1")],
    "an empty path": instead(b":path", b""),
    "a path without a slash": instead(b":path", b"mcp"),
    "a path that is a URL": instead(b":path", b"http://a/"),
    "a star": instead(b":path", b"*"),
    "an empty method": instead(b":method", b""),
    "an empty scheme": instead(b":scheme", b""),
    "another scheme": instead(b":scheme", b"ftp"),
    "a scheme with more behind it": instead(b":scheme", b"http://b"),
    "another host": [*GET, (b"host", b"b")],
    "two hosts": [*GET, (b"host", b"127.0.0.1"), (b"host", b"127.0.0.1")],
    "two hosts and no authority": [*without(b":authority"), (b"host", b"a"), (b"host", b"b")],
    "CONNECT": [(b":method", b"CONNECT"), (b":authority", b"a")],
    "CONNECT for a protocol": [*instead(b":method", b"CONNECT"), (b":protocol", b"websocket")],
    "a protocol": [*GET, (b":protocol", b"websocket")],
    "300 headers": [*GET, *((b"a%d" % number, b"1") for number in range(300))],
}


@pytest.mark.rule("T27")
async def test_a_malformed_head_ends_its_stream_and_reaches_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    application, found = StubApplication(), {}
    async with talking(application) as (peer, frames):
        for stream, (name, fields) in zip(STREAMS, HEADS.items(), strict=False):
            await peer.say(frame(h2.HEADERS, WHOLE, stream, block(fields)))
            found[name] = (await frames.until(RstStreamFrame, stream)).error_code
        await others_live(application, peer, frames)
    assert found == dict.fromkeys(HEADS, ErrorCodes.PROTOCOL_ERROR)
    assert application.begun == ["/slow", "/"]
    assert_quiet(caplog)


async def others_live(application: StubApplication, peer: Peer, frames: Frames) -> None:
    """Have the slow request be answered, and another one."""
    application.may_answer.set()
    await frames.until(DataFrame, 1)
    await peer.say(frame(h2.HEADERS, WHOLE, 2**20 + 1, block(GET)))
    await frames.until(DataFrame, 2**20 + 1)


def assert_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing but news is in the log."""
    assert [record for record in caplog.records if record.levelno > logging.INFO or record.exc_info] == []


FINE = {
    "te: trailers": [*GET, (b"te", b"trailers")],
    "the host twice": [*GET, (b"host", b"127.0.0.1")],
    "a host alone": [*without(b":authority"), (b"host", b"127.0.0.1")],
    "TLS before": instead(b":scheme", b"https"),
    "a star with OPTIONS": [(b":method", b"OPTIONS"), *without(b":method")[:1], (b":path", b"*"), GET[3]],
    "a length of zero": [*GET, (b"content-length", b"0")],
    "a value that is empty": [*GET, (b"a", b"")],
    "a value of other bytes": [*GET, (b"a", b"x\ty \xff z")],
    "a query": instead(b":path", b"/?a=b%20c"),
    "cookies": [*GET, (b"cookie", b"a=b"), (b"cookie", b"c=d")],
}


@pytest.mark.rule("T27")
async def test_a_head_that_is_as_it_must_be_is_served() -> None:
    application = StubApplication()
    async with talking(application) as (peer, frames):
        for stream, fields in zip(STREAMS, FINE.values(), strict=False):
            await peer.say(frame(h2.HEADERS, WHOLE, stream, block(fields)))
            await frames.until(DataFrame, stream)


Part = Callable[[int], bytes]
"""A frame of a stream that is still to be said."""


def post(*fields: tuple[bytes, bytes]) -> Part:
    """The head of a request whose body follows."""
    return lambda stream: frame(h2.HEADERS, END_HEADERS, stream, block([*head(path=b"/post"), *fields]))


def data(content: bytes, flags: int = 0) -> Part:
    """A part of a body."""
    return lambda stream: frame(h2.DATA, flags, stream, content)


def trailers(*fields: tuple[bytes, bytes], flags: int = WHOLE) -> Part:
    """Headers that follow a body."""
    return lambda stream: frame(h2.HEADERS, flags, stream, block(fields))


LENGTH = (b"content-length", b"3")
BODIES: dict[str, tuple[Part, ...]] = {
    "more than its length": (post(LENGTH), data(b"four")),
    "less than its length": (post(LENGTH), data(b"ab", END_STREAM)),
    "nothing but a length": (post(LENGTH), data(b"", END_STREAM)),
    "less than its length, and trailers": (post(LENGTH), data(b"ab"), trailers((b"a", b"b"))),
    "a pseudo header behind it": (post(), trailers((b":path", b"/"))),
    "an upper-case name behind it": (post(), trailers((b"A", b"b"))),
    "a line feed behind it": (post(), trailers((b"a", b"b\nc"))),
    "a connection behind it": (post(), trailers((b"connection", b"close"))),
    "trailers that are not its end": (post(), trailers((b"a", b"b"), flags=END_HEADERS)),
    "too large a window": (post(), lambda stream: frame(h2.WINDOW_UPDATE, 0, stream, b"\x7f\xff\xff\xff")),
}


@pytest.mark.rule("T27")
async def test_a_malformed_body_ends_its_stream_and_is_never_whole(caplog: pytest.LogCaptureFixture) -> None:
    application = StubApplication()
    async with talking(application) as (peer, frames):
        for stream, parts in zip(STREAMS, BODIES.values(), strict=False):
            await peer.say(b"".join(part(stream) for part in parts))
            await frames.until(RstStreamFrame, stream)
        await others_live(application, peer, frames)
        await until(lambda: application.begun.count("/post") == application.left.count("/post"))
    assert application.whole == ["/slow", "/"]
    assert_quiet(caplog)


LATE = {
    "DATA": frame(h2.DATA, END_STREAM, 1, b"x"),
    "HEADERS": frame(h2.HEADERS, WHOLE, 1, block([(b"a", b"b")])),
}


@pytest.mark.rule("T27")
@pytest.mark.parametrize("late", [pytest.param(late, id=name) for name, late in LATE.items()])
async def test_what_follows_the_end_of_a_request_ends_its_stream(late: bytes) -> None:
    application = StubApplication()
    async with talking(application) as (peer, frames):
        await peer.say(late)
        reset = await frames.until(RstStreamFrame, 1)
        await peer.say(frame(h2.HEADERS, WHOLE, 5, block(GET)))
        await frames.until(DataFrame, 5)
    assert reset.error_code == ErrorCodes.STREAM_CLOSED


@pytest.mark.rule("T27")
async def test_a_body_that_ends_with_trailers_is_whole() -> None:
    application = StubApplication()
    async with talking(application) as (peer, frames):
        await peer.say(post(LENGTH)(3) + data(b"abc")(3) + trailers((b"a", b"b"))(3))
        await frames.until(DataFrame, 3)
    assert "/post" in application.whole


def entry(setting: int, value: int) -> bytes:
    """A SETTINGS frame."""
    return frame(h2.SETTINGS, 0, 0, struct.pack(">HL", setting, value))


BEGUN = frame(h2.HEADERS, END_STREAM, 3, block(GET))
"""A header block of which more must follow."""
BROKEN = {
    "an even stream": (frame(h2.HEADERS, WHOLE, 2, block(GET)), ErrorCodes.PROTOCOL_ERROR),
    "a stream below the last": (
        frame(h2.HEADERS, WHOLE, 7, block(GET)) + frame(h2.HEADERS, WHOLE, 5, block(GET)),
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "DATA of an idle stream": (frame(h2.DATA, 0, 9, b"x"), ErrorCodes.PROTOCOL_ERROR),
    "DATA of no stream": (frame(h2.DATA, 0, 0, b"x"), ErrorCodes.PROTOCOL_ERROR),
    "HEADERS of no stream": (frame(h2.HEADERS, WHOLE, 0, block(GET)), ErrorCodes.PROTOCOL_ERROR),
    "RST_STREAM of no stream": (frame(h2.RST_STREAM, 0, 0, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
    "RST_STREAM of an idle stream": (frame(h2.RST_STREAM, 0, 9, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
    "RST_STREAM of an even stream": (frame(h2.RST_STREAM, 0, 2, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
    "RST_STREAM of 3 bytes": (frame(h2.RST_STREAM, 0, 1, bytes(3)), ErrorCodes.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of an idle stream": (frame(h2.WINDOW_UPDATE, 0, 9, b"\0\0\0\1"), ErrorCodes.PROTOCOL_ERROR),
    "WINDOW_UPDATE by nothing": (frame(h2.WINDOW_UPDATE, 0, 0, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
    "WINDOW_UPDATE of 3 bytes": (frame(h2.WINDOW_UPDATE, 0, 0, bytes(3)), ErrorCodes.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE by too much": (
        frame(h2.WINDOW_UPDATE, 0, 0, struct.pack(">L", 2**31 - 1)),
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "CONTINUATION of nothing": (frame(h2.CONTINUATION, END_HEADERS, 1), ErrorCodes.PROTOCOL_ERROR),
    "CONTINUATION of an idle stream": (frame(h2.CONTINUATION, END_HEADERS, 9), ErrorCodes.PROTOCOL_ERROR),
    **{
        f"{name} within a header block": (BEGUN + other, ErrorCodes.PROTOCOL_ERROR)
        for name, other in {
            "PRIORITY": frame(h2.PRIORITY, 0, 3, bytes(5)),
            "PING": frame(h2.PING, 0, 0, bytes(8)),
            "an unknown frame": frame(0x42, 0, 3),
            "ALTSVC": frame(0xA, 0, 3, bytes(2)),
            "DATA": frame(h2.DATA, 0, 3, b"x"),
            "HEADERS": frame(h2.HEADERS, WHOLE, 3, block(GET)),
            "CONTINUATION of another stream": frame(h2.CONTINUATION, END_HEADERS, 5),
        }.items()
    },
    "an overlong frame": (frame(h2.DATA, 0, 1, bytes(16_385)), ErrorCodes.FRAME_SIZE_ERROR),
    "an overlong unknown frame": (frame(0x42, 0, 1, bytes(16_385)), ErrorCodes.FRAME_SIZE_ERROR),
    "PING of 7 bytes": (frame(h2.PING, 0, 0, bytes(7)), ErrorCodes.FRAME_SIZE_ERROR),
    "PING of a stream": (frame(h2.PING, 0, 1, bytes(8)), ErrorCodes.PROTOCOL_ERROR),
    "PRIORITY of 4 bytes": (frame(h2.PRIORITY, 0, 1, bytes(4)), ErrorCodes.FRAME_SIZE_ERROR),
    "PRIORITY of no stream": (frame(h2.PRIORITY, 0, 0, bytes(5)), ErrorCodes.PROTOCOL_ERROR),
    "SETTINGS of 5 bytes": (frame(h2.SETTINGS, 0, 0, bytes(5)), ErrorCodes.FRAME_SIZE_ERROR),
    "SETTINGS of a stream": (frame(h2.SETTINGS, 0, 1), ErrorCodes.PROTOCOL_ERROR),
    "SETTINGS ACK with an entry": (frame(h2.SETTINGS, h2.ACK, 0, bytes(6)), ErrorCodes.FRAME_SIZE_ERROR),
    "SETTINGS of push": (entry(2, 2), ErrorCodes.PROTOCOL_ERROR),
    "SETTINGS of too large a window": (entry(4, 2**31), ErrorCodes.FLOW_CONTROL_ERROR),
    "SETTINGS of too small a frame": (entry(5, 1), ErrorCodes.PROTOCOL_ERROR),
    "GOAWAY of a stream": (frame(h2.GOAWAY, 0, 1, bytes(8)), ErrorCodes.PROTOCOL_ERROR),
    "PUSH_PROMISE": (frame(h2.PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + block(GET)), ErrorCodes.PROTOCOL_ERROR),
    "a header block that is none": (frame(h2.HEADERS, WHOLE, 3, b"\x00\x0fa"), ErrorCodes.COMPRESSION_ERROR),
    "a header of no index": (frame(h2.HEADERS, WHOLE, 3, b"\x80"), ErrorCodes.COMPRESSION_ERROR),
    "too large a table": (frame(h2.HEADERS, WHOLE, 3, b"\x3f\xe1\xff\x03"), ErrorCodes.COMPRESSION_ERROR),
    "three sizes of the table": (
        frame(h2.HEADERS, WHOLE, 3, b"\x20\x20\x20" + block(GET)),
        ErrorCodes.COMPRESSION_ERROR,
    ),
    "too much padding": (frame(h2.DATA, h2.PADDED, 1, b"\x05a"), ErrorCodes.PROTOCOL_ERROR),
}


@pytest.mark.rule("T27")
async def test_what_breaks_the_connection_ends_it_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    found = {}
    async with serving(StubApplication()) as config:
        for name, (broken, _) in BROKEN.items():
            async with await connect(config) as stream:
                peer = Peer(stream)
                frames = Frames(peer)
                await peer.say(h2.PREFACE + frame(h2.SETTINGS, 0, 0) + frame(h2.HEADERS, END_HEADERS, 1, block(GET)))
                await peer.say(broken)
                found[name] = (await frames.until(GoAwayFrame, 0)).error_code
    assert found == {name: code for name, (_, code) in BROKEN.items()}
    assert_quiet(caplog)


@pytest.mark.rule("T27")
async def test_advice_of_priority_is_read_past_however_odd_it_is() -> None:
    """On itself, on a stream that will never be, and in HEADERS: nothing of it means anything (RFC 9113, 5.3.2)."""
    application = StubApplication()
    async with talking(application) as (peer, frames):
        await peer.say(frame(h2.PRIORITY, 0, 3, struct.pack(">LB", 3, 1)) * 1000)
        await peer.say(frame(h2.PRIORITY, 0, 4, struct.pack(">LB", 2**31 + 7, 1)) * 1000)
        flags = WHOLE | h2.HAS_PRIORITY
        await peer.say(frame(h2.HEADERS, flags, 3, struct.pack(">LB", 3, 1) + block(GET)))
        await frames.until(DataFrame, 3)
