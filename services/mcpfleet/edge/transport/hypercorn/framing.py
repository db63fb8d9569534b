"""Makes h11 strict: it refuses bytes that two parsers of HTTP/1.1 could read as different requests (T30).

h11 accepts bare line feeds, folded lines, control characters in values, any version, and two framings at once. A proxy
before an edge may read such bytes differently, and smuggle a second request. Here a request that violates RFC 9112 ends
its connection, and nothing behind it is read as a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import h11
from h11._readers import ChunkedReader, expect_nothing, maybe_read_from_IDLE_client
from h11._receivebuffer import ReceiveBuffer

LONGEST_HEAD: Final = 64 * 1024
"""Bytes of a request's head, or of the trailers behind a body, at most."""
_MOST_FIELDS: Final = 512
"""Fields of a head, at most. Each costs microseconds, and 64 KiB could hold sixteen thousand."""
_LONGEST_CHUNK_LINE: Final = 1024
"""Bytes of the line before a chunk, at most: its size, and extensions that are ignored."""
_SMALL_CHUNKS: Final = 4096
"""Chunks that a body may have, whatever their size."""
_MEAN_CHUNK: Final = 32
"""Bytes that each further chunk must have on average; a chunk costs as much as two thousand bytes."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\n"
"""The part of HTTP/2's preface that looks like a head (RFC 9113, 3.4). A connection begins with it."""
_VERSIONS: Final = frozenset((b"1.0", b"1.1"))

_FIRST: Final = 0x21
"""The smallest byte that may begin a line; a client that speaks TLS begins with a smaller one."""
_SLASH: Final = 0x2F
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
"""The end of a head. It also matches a malformed end, so that the fault is found at once."""
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Z]++) ([!-~]++) HTTP/([0-9]\.[0-9])\r\n")
"""Methods are case-sensitive, and all methods in use have capital letters (RFC 9110, 9.1)."""
_FIELDS: Final = re.compile(rb"(?:" + _TOKEN + rb":[\t -~\x80-\xff]*+\r\n)*+\r\n")
_FIELD: Final = re.compile(rb"([^:]++):([^\r]*+)\r\n")
"""One line of fields that `_FIELDS` has matched."""
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#@]++)(?:[/?].*+)?", re.IGNORECASE)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*+;[\t -~\x80-\xff]*+)?\r\n")


def _refused(why: str, status: int = 400) -> h11.LocalProtocolError:
    """Return an error that makes Hypercorn answer with the status, and close the connection."""
    return h11.LocalProtocolError(why, error_status_hint=status)


class _Buffer(ReceiveBuffer):
    """Bytes that have arrived and were not read yet."""

    def skip(self, expected: bytes) -> bool | None:
        """Read past expected bytes; return None until they have arrived whole, and False where other bytes come."""
        if not expected.startswith(self._data[: len(expected)]):
            return False
        if len(self) < len(expected):
            return None
        self._extract(len(expected))
        return True

    def clear(self) -> None:
        """Drop all bytes."""
        self._extract(len(self))

    def block(self) -> bytes | None:
        """Take out a block of lines with the empty line at its end; return None until it is whole."""
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
            limit: bytes of an unfinished head, at most.
            is_first: the request may be the preface of HTTP/2.
        """
        self._may_be_http2 = is_first
        super().__init__(h11.SERVER, max_incomplete_event_size=limit)
        self._receive_buffer = _Buffer()

    def _get_io_object(self, role: Any, event: Any, io_dict: Any) -> Callable[..., Any] | None:
        reader = super()._get_io_object(role, event, io_dict)
        if reader is maybe_read_from_IDLE_client:
            is_first, self._may_be_http2 = self._may_be_http2, False
            return _read_first if is_first else _read_head
        if reader is expect_nothing:
            return _read_past
        return _Chunks() if isinstance(reader, ChunkedReader) else reader


def _read_past(buffer: _Buffer) -> None:
    """Ignore bytes behind the last request of a connection (RFC 9112, 9.6), where h11 would raise an error."""
    buffer.clear()


def _read_first(buffer: _Buffer) -> h11.Request | None:
    """Read the head of the first request, or the preface of HTTP/2."""
    if buffer.skip(PREFACE):
        return h11.Request(method=b"PRI", target=b"*", headers=[], http_version=b"2.0")
    return _read_head(buffer)


def _read_head(buffer: _Buffer) -> h11.Request | None:
    """Read a request's head; return None until it is whole."""
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
    """Refuse several lengths, and a length with chunks (RFC 9112, 6.1 to 6.3); h11 checks each alone."""
    lengths = codings = 0
    for name, value in fields:
        size = len(name)
        if size == 14 and name.lower() == b"content-length":
            lengths += 1
            if not value.isdigit():  # h11 reads `5, 5` as 5
                raise _refused("bad Content-Length")
        elif size == 17 and name.lower() == b"transfer-encoding":
            codings += 1
    if lengths > 1 or (codings and (lengths or version == b"1.0")):
        raise _refused("ambiguous length")


def _check_target(request: h11.Request) -> None:
    """Refuse a target other than a path, a URL of the Host, or `*` with OPTIONS (RFC 9112, 3.2)."""
    absolute = _ABSOLUTE.fullmatch(request.target)
    if absolute is None:
        if request.target == b"*" and request.method == b"OPTIONS":
            return
        raise _refused("bad target")
    hosts = [value.lower() for name, value in request.headers if name == b"host"]
    if hosts != [absolute[1].lower()]:
        raise _refused("the target and Host differ")


class _Chunks:
    """Reads a body in chunks. It joins all that have arrived, since each part costs far more than a small chunk."""

    def __init__(self) -> None:
        self._count = self._size = 0
        """Chunks that have begun, and bytes in them."""
        self._left = 0
        """Bytes of the current chunk that are still to come."""
        self._is_at_end = False
        """The line end behind a chunk comes next."""
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
        """Refuse a body whose client closes its side before the last chunk."""
        raise _refused("the body has no end")

    def _advance(self, buffer: _Buffer, parts: list[bytes | bytearray]) -> bool:
        """Read one element; return False where no whole one has arrived."""
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
    """Read the trailers behind the last chunk, which are ignored."""
    skipped = buffer.skip(b"\r\n")
    if skipped is False:
        block = buffer.block()
        if block is None:
            return None
        if _FIELDS.fullmatch(block) is None:
            raise _refused("bad trailer")
    return None if skipped is None else h11.EndOfMessage()
