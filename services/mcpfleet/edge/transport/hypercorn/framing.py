"""h11, strict where it is lenient: what two readers of HTTP/1.1 could read as two different requests is refused (T30).

h11 takes bare line feeds, folded lines, control characters in values, any version, two framings at once. A proxy before
an edge may read such bytes otherwise, and then the rest of one request is another. Here a request that breaks the form
of RFC 9112 ends its connection: nothing behind it is read as a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import h11
from h11._readers import ChunkedReader, expect_nothing, maybe_read_from_IDLE_client
from h11._receivebuffer import ReceiveBuffer

LONGEST_HEAD: Final = 64 * 1024
"""Bytes of a request's head, or of what follows the last chunk of a body."""
_MOST_FIELDS: Final = 512
"""Fields of a head: each costs a few microseconds, and 64 KiB have room for sixteen thousand."""
_LONGEST_CHUNK_LINE: Final = 1024
"""Bytes of the line before a chunk: its size, and extensions that nobody reads."""
_SMALL_CHUNKS: Final = 4096
"""Chunks that a body may have, however small they are."""
_MEAN_CHUNK: Final = 32
"""Bytes that each further chunk must have on average: one costs as much as two thousand bytes."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\n"
"""The part of HTTP/2's preface that looks like a head (RFC 9113, 3.4): a connection begins by it."""
_VERSIONS: Final = frozenset((b"1.0", b"1.1"))

_FIRST: Final = 0x21
"""The least byte that a line may begin with; a client that speaks TLS begins with less."""
_SLASH: Final = 0x2F
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
"""Ends a head also where it should not, so that the fault is found at once."""
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Z]++) ([!-~]++) HTTP/([0-9]\.[0-9])\r\n")
"""Methods have capital letters: another spelling is another method (RFC 9110, 9.1), and none that there is."""
_FIELDS: Final = re.compile(rb"(?:" + _TOKEN + rb":[\t -~\x80-\xff]*+\r\n)*+\r\n")
_FIELD: Final = re.compile(rb"([^:]++):([^\r]*+)\r\n")
"""A line of what is known to be fields."""
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#@]++)(?:[/?].*+)?", re.IGNORECASE)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*+;[\t -~\x80-\xff]*+)?\r\n")


def _refused(why: str, status: int = 400) -> h11.LocalProtocolError:
    """Hypercorn answers with the status and closes the connection."""
    return h11.LocalProtocolError(why, error_status_hint=status)


class _Buffer(ReceiveBuffer):
    """Bytes that have arrived and were not read."""

    def skip(self, expected: bytes) -> bool | None:
        """Read past what is expected: None until it has arrived whole, False where something else comes."""
        if not expected.startswith(self._data[: len(expected)]):
            return False
        if len(self) < len(expected):
            return None
        self._extract(len(expected))
        return True

    def clear(self) -> None:
        """Drop all."""
        self._extract(len(self))

    def block(self) -> bytes | None:
        """Take a block of lines out, the empty one at its end among them; None until it is whole."""
        if self._data and self._data[0] < _FIRST:
            raise _refused("bad first byte")
        end = _BLANK_LINE.search(self._data, self._multiple_lines_search)
        if end is None:
            self._multiple_lines_search = max(0, len(self) - 2)
            return None
        if end.end() > LONGEST_HEAD:
            raise _refused("head too long", 431)
        return bytes(self._extract(end.end()))


class StrictConnection(h11.Connection):
    """A server's side of one HTTP/1.1 connection."""

    def __init__(self, limit: int, *, is_first: bool) -> None:
        """Wait for a request.

        Args:
            limit: bytes of a head that is not whole.
            is_first: it may turn out to be HTTP/2.
        """
        self._may_be_http2 = is_first
        super().__init__(h11.SERVER, max_incomplete_event_size=limit)
        self._receive_buffer = _Buffer()

    def _get_io_object(self, role: Any, event: Any, io_dict: Any) -> Callable[..., Any] | None:
        found = super()._get_io_object(role, event, io_dict)
        if found is maybe_read_from_IDLE_client:
            is_first, self._may_be_http2 = self._may_be_http2, False
            return _read_first if is_first else _read_head
        if found is expect_nothing:
            return _read_past
        return _Chunks() if isinstance(found, ChunkedReader) else found


def _read_past(buffer: _Buffer) -> None:
    """Ignore what comes behind the last request of a connection (RFC 9112, 9.6); h11 makes an error of that request."""
    buffer.clear()


def _read_first(buffer: _Buffer) -> h11.Request | None:
    """Read the head of the first request, or the preface of HTTP/2."""
    if buffer.skip(PREFACE):
        return h11.Request(method=b"PRI", target=b"*", headers=[], http_version=b"2.0")
    return _read_head(buffer)


def _read_head(buffer: _Buffer) -> h11.Request | None:
    """Read a request's head; None until it is whole."""
    block = buffer.block()
    if block is None:
        return None
    line = _REQUEST_LINE.match(block)
    if line is None:
        raise _refused("bad request line")
    method, target, version = line.groups()
    if version not in _VERSIONS:
        raise _refused("unknown version", 505)
    if block.count(b"\n") > _MOST_FIELDS + 2:
        raise _refused("too many fields", 431)
    if _FIELDS.fullmatch(block, line.end()) is None:
        raise _refused("bad field line")
    fields = [(name, value.strip(b" \t")) for name, value in _FIELD.findall(block, line.end())]
    _check_framing(fields, version)
    request = h11.Request(method=method, target=target, headers=fields, http_version=version, _parsed=True)
    if target[0] != _SLASH:
        _check_target(request)
    return request


def _check_framing(fields: Sequence[tuple[bytes, bytes]], version: bytes) -> None:
    """Refuse several lengths, and a length with chunks (RFC 9112, 6.1 to 6.3); h11 checks what either says."""
    lengths = codings = 0
    for name, value in fields:
        size = len(name)
        if size == 14 and name.lower() == b"content-length":
            lengths += 1
            if not value.isdigit():  # h11 takes `5, 5` for 5
                raise _refused("bad Content-Length")
        elif size == 17 and name.lower() == b"transfer-encoding":
            codings += 1
    if lengths > 1 or (codings and (lengths or version == b"1.0")):
        raise _refused("ambiguous length")


def _check_target(request: h11.Request) -> None:
    """Refuse a target that is no path, unless it is a URL of the Host, or `*` of OPTIONS (RFC 9112, 3.2)."""
    absolute = _ABSOLUTE.fullmatch(request.target)
    if absolute is None:
        if request.target == b"*" and request.method == b"OPTIONS":
            return
        raise _refused("bad target")
    hosts = [value.lower() for name, value in request.headers if name == b"host"]
    if hosts != [absolute[1].lower()]:
        raise _refused("the target and Host differ")


class _Chunks:
    """Reads a body in chunks: all that have arrived as one part, since each part costs far more than a small chunk."""

    def __init__(self) -> None:
        self._count = self._size = 0
        """Chunks that have begun, and bytes in them."""
        self._left = 0
        """Bytes of the chunk that are still to come."""
        self._is_at_end = False
        """The line end behind a chunk is next."""
        self._is_over = False
        """The last chunk has come."""

    def __call__(self, buffer: _Buffer) -> h11.Data | h11.EndOfMessage | None:
        parts: list[bytes | bytearray] = []
        while not self._is_over and self._advance(buffer, parts):
            pass
        if parts:
            return h11.Data(data=b"".join(parts))
        return _read_trailers(buffer) if self._is_over else None

    def read_eof(self) -> NoReturn:
        """The client closes its side first."""
        raise _refused("the body has no end")

    def _advance(self, buffer: _Buffer, parts: list[bytes | bytearray]) -> bool:
        """Read one thing further; False where there is no more."""
        if self._left:
            data = buffer.maybe_extract_at_most(self._left)
            if data is None:
                return False
            parts.append(data)
            self._left -= len(data)
            self._is_at_end = not self._left
        elif self._is_at_end:
            skipped = buffer.skip(b"\r\n")
            if skipped is False:
                raise _refused("bad end of a chunk")
            self._is_at_end = skipped is None
            return skipped is True
        else:
            line = buffer.maybe_extract_next_line()
            if len(buffer if line is None else line) > _LONGEST_CHUNK_LINE:
                raise _refused("chunk line too long")
            if line is None:
                return False
            self._begin(line)
        return True

    def _begin(self, line: bytearray) -> None:
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise _refused("bad chunk line")
        self._left = int(size[1], 16)
        self._count += 1
        if self._count > _SMALL_CHUNKS + self._size // _MEAN_CHUNK:
            raise _refused("too many small chunks")
        self._size += self._left
        self._is_over = not self._left


def _read_trailers(buffer: _Buffer) -> h11.EndOfMessage | None:
    """Read what follows the last chunk, of which nothing is used."""
    skipped = buffer.skip(b"\r\n")
    if skipped is False:
        block = buffer.block()
        if block is None:
            return None
        if _FIELDS.fullmatch(block) is None:
            raise _refused("bad trailer")
    return None if skipped is None else h11.EndOfMessage()
