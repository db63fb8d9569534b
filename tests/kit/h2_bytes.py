"""Frames of HTTP/2 as bytes, right or wrong, for what no library would send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20
CANCEL: Final = (8).to_bytes(4)
"""The payload of a RST_STREAM by which a client takes its request back."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def text(value: bytes) -> bytes:
    """A name or a value in a header block, without Huffman's coding."""
    if len(value) < 127:
        return bytes((len(value),)) + value
    length, rest = len(value) - 127, b""
    while length > 127:
        rest, length = rest + bytes((length & 127 | 128,)), length >> 7
    return b"\x7f" + rest + bytes((length,)) + value


def block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block that leaves nothing in the table."""
    return b"".join(b"\x00" + text(name) + text(value) for name, value in headers)


def head(method: bytes = b"POST", path: bytes = b"/mcp", authority: bytes = b"127.0.0.1") -> list[tuple[bytes, bytes]]:
    """The pseudo headers of a request."""
    return [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", authority)]
