"""Vectors over HTTP/1.1, as raw bytes on a socket of their own."""

from __future__ import annotations

import base64
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

TIMEOUT = 10.0
"""Seconds that an answer may take."""
FOLLOWING = b"GET /following HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A sound request for what is not there."""


@dataclass(frozen=True)
class Answer:
    """The response."""

    status: int
    headers: list[tuple[str, str]]
    """With names in small letters."""
    body: bytes = b""
    ends: bool | None = None
    """Whether the connection ended with it; None where that was not looked at."""

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for each, value in self.headers if each == name.lower()]


def content(form: Any) -> bytes:
    """The bytes of a text, or of one of the forms for what is none or too long."""
    match form:
        case str():
            return form.encode()
        case {"base64": encoded}:
            return base64.b64decode(encoded)
        case {"repeat": [text, times]}:
            return content(text) * int(times)
        case {"join": parts}:
            return b"".join(content(part) for part in parts)
        case _:
            raise ValueError(f"{form!r} is no content")


def written(request: dict[str, Any]) -> bytes:
    """A vector's request as HTTP/1.1 sends it."""
    body = content(request.get("body", ""))
    headers = [(content(name), content(value)) for name, value in request["headers"]]
    framing = request.get("framing", "length")
    names = {name.lower() for name, _ in headers}
    if framing == "chunked":
        headers.append((b"Transfer-Encoding", b"chunked"))
        body = _chunked(body)
    elif framing == "unfinished":
        headers.append((b"Content-Length", b"%d" % (len(body) + 10)))
    elif "body" in request and b"content-length" not in names:
        headers.append((b"Content-Length", b"%d" % len(body)))
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (request["method"].encode(), request["path"].encode(), lines, body)


def exchange(address: tuple[str, int], request: dict[str, Any]) -> Answer:
    """Send a request on a connection of its own, and read the answer."""
    with socket.create_connection(address, TIMEOUT) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # the answer may come first
            connection.sendall(written(request))
        return Reader(connection).answer(has_body=request["method"] != "HEAD")


def exchange_bytes(address: tuple[str, int], request: dict[str, Any]) -> Answer:
    """Send bytes with a sound request behind, read the answer, and see whether the other is answered as well."""
    with socket.create_connection(address, TIMEOUT) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # the answer may come first
            connection.sendall(content(request["bytes"]) + FOLLOWING)
        reader = Reader(connection)
        answer = reader.answer()
        with suppress(EOFError, ConnectionResetError):
            while (status := reader.answer().status) != 404:
                assert status >= 400
            return replace(answer, ends=False)
        return replace(answer, ends=True)


class Reader:
    """Reads answers from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = b""

    def answer(self, *, has_body: bool = True) -> Answer:
        """Read one answer of known length.

        Raises:
            EOFError: the connection ended first.
        """
        while b"\r\n\r\n" not in self._data:
            self._more()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        answer = Answer(int(first.split()[1]), [(name.lower(), value.strip()) for name, _, value in pairs])
        size = int(next(iter(answer.all("content-length")), 0)) if has_body else 0
        while len(self._data) < size:
            self._more()
        body, self._data = self._data[:size], self._data[size:]
        return Answer(answer.status, answer.headers, body)

    def _more(self) -> None:
        data = self._connection.recv(65_536)
        if not data:
            raise EOFError(f"the connection ended after {self._data!r}")
        self._data += data


def _chunked(body: bytes) -> bytes:
    pieces = [body[start : start + 5_000] for start in range(0, len(body), 5_000)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
