"""Floods of HTTP/2: frames that cost a server work and are no request, and how they are sent."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

from tests.kit import h2_bytes as h2
from tests.kit.h2_bytes import CANCEL, END_HEADERS, END_STREAM, block, frame, head

PATIENCE: Final = 60.0
"""Seconds after which a flood is given up."""
SILENCE: Final = 2.0
"""Seconds after which a server that says nothing and takes nothing will not do so any more, on a quiet machine."""
CALM: Final = 11
"""ENHANCE_YOUR_CALM."""
POST: Final = block(head())
WHOLE: Final = block(head(b"GET", b"/nothing"))
STREAMS: Final = range(1, 2**31, 2)

Flood = Callable[[], Iterator[bytes]]


def again(*frames: bytes) -> Flood:
    """The same frames again and again, of which the first may open a stream."""

    def flood() -> Iterator[bytes]:
        yield frames[0]
        while True:
            yield from frames[1:] or frames

    return flood


def each(make: Callable[[int], bytes]) -> Flood:
    """Something for each stream, one after the other."""

    def flood() -> Iterator[bytes]:
        yield from map(make, STREAMS)

    return flood


def opened(make: Callable[[int], bytes], streams: int = 400) -> Flood:
    """Streams that wait for their bodies, and then something again and again."""

    def flood() -> Iterator[bytes]:
        yield b"".join(frame(h2.HEADERS, END_HEADERS, stream, POST) for stream in STREAMS[:streams])
        for number in count():
            yield make(number)

    return flood


def post(stream: int, flags: int = END_HEADERS, fields: bytes = POST) -> bytes:
    """A request whose body follows."""
    return frame(h2.HEADERS, flags, stream, fields)


def get(stream: int) -> bytes:
    """A whole request."""
    return frame(h2.HEADERS, END_HEADERS | END_STREAM, stream, WHOLE)


def reset(stream: int) -> bytes:
    """The end of a request that is not wanted any more."""
    return frame(h2.RST_STREAM, 0, stream, CANCEL)


def split(stream: int, parts: int, part: bytes) -> bytes:
    """A request in a header block of many parts."""
    between = frame(h2.CONTINUATION, 0, stream, part) * parts
    return post(stream, 0) + between + frame(h2.CONTINUATION, END_HEADERS, stream, b"")


def entry(setting: int, value: int) -> bytes:
    """An entry of SETTINGS."""
    return struct.pack(">HL", setting, value)


def update(stream: int, by: int) -> bytes:
    """More window."""
    return frame(h2.WINDOW_UPDATE, 0, stream, struct.pack(">L", by))


UNKNOWN_SETTINGS: Final = b"".join(entry(256 + number, 1) for number in range(2700))
MANY: Final = POST + b"\x00\x01a\x00" * 1700
"""As many headers as a request may have."""
INDEXED: Final = POST + b"\x40\x01b\x3c" + b"c" * 60 + b"\xbe" * 640
RESIZED: Final = b"\x20" * 16_000 + POST
HUFFMAN: Final = POST + b"\x00\x01a\xff\x81\x7c" + b"\x18\xc6\x31\x8c\x63" * 3200
"""A value of 25,600 letters in Huffman's coding, which makes 16,000 bytes of them."""

FLOODS: Final[dict[str, Flood]] = {
    "PRIORITY": each(lambda stream: frame(h2.PRIORITY, 0, stream, struct.pack(">LB", stream + 2, 7))),
    "PRIORITY of one stream": again(frame(h2.PRIORITY, 0, 1, bytes(5))),
    "PRIORITY among open streams": opened(
        lambda number: frame(h2.PRIORITY, 0, 1 + number % 400 * 2, struct.pack(">LB", 1 + number * 7 % 400 * 2, 7))
    ),
    "PRIORITY in HEADERS": each(lambda stream: post(stream, END_HEADERS | h2.HAS_PRIORITY, bytes(5) + POST)),
    "rapid reset": each(lambda stream: post(stream) + reset(stream)),
    "rapid reset of whole requests": each(lambda stream: get(stream) + reset(stream)),
    "streams that send no body": each(post),
    "made reset: DATA after the end": each(lambda stream: get(stream) + frame(h2.DATA, 0, stream, b"x")),
    "made reset: window too large": each(lambda stream: post(stream) + update(stream, 2**31 - 1)),
    "made reset: trailers without end": each(lambda stream: post(stream) + post(stream, fields=b"\x00\x01a\x01b")),
    "made reset: wrong length": each(
        lambda stream: post(stream, fields=POST + block([(b"content-length", b"1")])) + frame(h2.DATA, 0, stream, b"xx")
    ),
    "malformed requests": each(lambda stream: post(stream, fields=block([(b":method", b"GET")]))),
    "no headers": each(lambda stream: post(stream, fields=b"")),
    "window of 0": each(lambda stream: post(stream) + update(stream, 0)),
    "SETTINGS": again(frame(h2.SETTINGS, 0, 0)),
    "SETTINGS of 2,700 entries": again(frame(h2.SETTINGS, 0, 0, UNKNOWN_SETTINGS)),
    "SETTINGS of the table": again(*(frame(h2.SETTINGS, 0, 0, entry(1, size)) for size in (0, 4096, 2**32 - 1, 100))),
    "SETTINGS of windows": opened(lambda number: frame(h2.SETTINGS, 0, 0, entry(4, number % 2 * 1000))),
    "SETTINGS ACK": again(frame(h2.SETTINGS, h2.ACK, 0)),
    "PING": again(frame(h2.PING, 0, 0, bytes(8))),
    "PING ACK": again(frame(h2.PING, h2.ACK, 0, bytes(8))),
    "WINDOW_UPDATE": again(update(0, 1)),
    "WINDOW_UPDATE of a stream": again(post(1), update(1, 1)),
    "WINDOW_UPDATE of a closed stream": again(post(1) + reset(1), update(1, 1)),
    "WINDOW_UPDATE of many": opened(lambda _: update(0, 1)),
    "unknown frames": again(frame(0x42, 0, 0)),
    "ALTSVC": again(frame(0xA, 0, 0, bytes(2))),
    "empty DATA": again(post(1), frame(h2.DATA, 0, 1)),
    "DATA of a byte": again(post(1), frame(h2.DATA, 0, 1, b"x")),
    "padded DATA": again(post(1), frame(h2.DATA, h2.PADDED, 1, b"\x01\x00")),
    "DATA of a closed stream": again(post(1) + reset(1), frame(h2.DATA, END_STREAM, 1)),
    "RST_STREAM of a closed stream": again(post(1) + reset(1), reset(1)),
    "HEADERS of a closed stream": again(post(1) + reset(1), post(1)),
    "CONTINUATION": again(post(1, 0), frame(h2.CONTINUATION, 0, 1)),
    "many CONTINUATION": each(lambda stream: split(stream, 60, b"") + reset(stream)),
    "header blocks without end": again(post(1, 0), frame(h2.CONTINUATION, 0, 1, bytes(16_000))),
    "many headers": each(lambda stream: post(stream, fields=MANY) + reset(stream)),
    "many headers of whole requests": each(
        lambda stream: frame(h2.HEADERS, END_HEADERS | END_STREAM, stream, WHOLE + MANY[len(POST) :])
    ),
    "indexed headers": each(lambda stream: post(stream, fields=INDEXED) + reset(stream)),
    "sizes of the table": each(lambda stream: post(stream, fields=RESIZED) + reset(stream)),
    "Huffman's coding": each(lambda stream: post(stream, fields=HUFFMAN) + reset(stream)),
    "GOAWAY": again(frame(h2.GOAWAY, 0, 0, bytes(8))),
    "GOAWAY with an error": again(frame(h2.GOAWAY, 0, 0, bytes(7) + b"\x02")),
    "PUSH_PROMISE": each(lambda stream: frame(h2.PUSH_PROMISE, END_HEADERS, stream, struct.pack(">L", 2) + POST)),
}


@dataclass
class Sent:
    """The outcome of a flood."""

    size: int = 0
    told: int | None = None
    """The error of the GOAWAY that ended it."""
    seconds: float = 0.0


def send(
    address: tuple[str, int], flood: Flood, size: int, *, segments: bool = False, silence: float = SILENCE
) -> Sent:
    """Send so many bytes of a flood, and read what comes, until all is sent or the connection is closed.

    Args:
        address: the server's.
        flood: makes the bytes.
        size: the number of bytes.
        segments: send each frame by itself.
        silence: seconds without a byte, in either direction, after which nothing more is expected.
    """
    parts = [h2.PREFACE + frame(h2.SETTINGS, 0, 0)]
    sent, made, begun = Sent(), 0, time.monotonic()
    for part in flood():
        parts.append(part)
        made += len(part)
        if made >= size:
            break
    pending = iter(parts) if segments else iter(cut(b"".join(parts)))
    with socket.create_connection(address) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setblocking(False)
        sent.told = _exchange(peer, pending, sent, silence)
    sent.seconds = time.monotonic() - begun
    return sent


def cut(data: bytes) -> list[bytes]:
    """Large pieces of it."""
    return [data[begin : begin + 65_536] for begin in range(0, len(data), 65_536)]


def _exchange(peer: socket.socket, pending: Iterator[bytes], sent: Sent, silence: float) -> int | None:
    rest, answer, until = next(pending), b"", time.monotonic() + PATIENCE
    while time.monotonic() < until:
        readable, writable, _ = select.select([peer], [peer] if rest else [], [], silence)
        try:
            if readable:
                got = peer.recv(65_536)
                if not got:
                    break
                answer = (answer + got)[-70_000:]
            if writable:
                done = peer.send(rest)
                sent.size += done
                rest = rest[done:] or next(pending, b"")
        except OSError:
            break
        if not (readable or writable) or (not rest and goaway(answer) is not None):
            break  # the edge has nothing to say any more, or takes nothing
    with suppress(OSError):
        while got := peer.recv(65_536):
            answer = (answer + got)[-70_000:]
    return goaway(answer)


def goaway(answer: bytes) -> int | None:
    """The error of a GOAWAY that is the last of what came."""
    last = answer[-17:]
    return int.from_bytes(last[13:]) if last[:4] == b"\x00\x00\x08\x07" else None
