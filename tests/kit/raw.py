"""Requests as bytes on a socket, for what no client library would send or show."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.kit.wire_bytes import Posts, lines, message, meta

META: Final = meta("raw")
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass
class Answer:
    """The response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def message(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Connection:
    """One HTTP/1.1 connection."""

    def __init__(self, stream: SocketStream, authority: str, path: str) -> None:
        self.stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._posts = Posts(authority, path)

    async def send(
        self, method: str, params: Mapping[str, Any], *, identifier: int = 1, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Send an MCP request as a conforming client would, with these headers beside its own."""
        said = META | dict(params.get("_meta", {}))
        body = message(method, params, said, identifier=identifier)
        name = params.get("name", params.get("taskId"))
        await self.stream.send(self._posts.post(body, lines(method, name) + _written(headers)))

    async def send_body(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a body with these headers beside those that every request has; its length may be said otherwise."""
        others = {name: value for name, value in headers.items() if name != "Content-Length"}
        await self.stream.send(self._posts.post(body, _written(others), length=headers.get("Content-Length")))

    async def head(self) -> Answer:
        """Receive an answer's head."""
        first, *lines = (await self._received.receive_until(b"\r\n\r\n", 65536)).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Answer(int(first.split()[1]), headers)

    async def answer(self) -> Answer:
        """Receive a whole answer of known length."""
        answer = await self.head()
        answer.body = await self._received.receive_exactly(int(answer.headers["content-length"]))
        return answer

    async def chunk(self) -> bytes:
        """Receive a piece of a stream; empty at its end."""
        size = int(await self._received.receive_until(b"\r\n", 64), 16)
        return (await self._received.receive_exactly(size + 2))[:-2]


def _written(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Connect to an endpoint for the length of a block."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with await anyio.connect_tcp(parts.hostname, parts.port) as stream:
        yield Connection(stream, parts.netloc, parts.path)
