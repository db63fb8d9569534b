"""Requests as bytes on a socket, for what no client library would send or show."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

VERSION = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Answer:
    """What came back."""

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
        self._authority = authority
        self._path = path

    async def send(self, method: str, params: Mapping[str, Any], *, identifier: int = 1) -> None:
        """Send an MCP request as a conforming client would."""
        meta = META | dict(params.get("_meta", {}))
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": meta}}
        named = {"Mcp-Name": params["name"]} if "name" in params else {}
        headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, **named}
        await self.send_body(json.dumps(message).encode(), headers)

    async def send_body(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a body with these headers beside those that every request has."""
        head = {
            "Host": self._authority,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        await self.stream.send(f"POST {self._path} HTTP/1.1\r\n{lines}\r\n".encode() + body)

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


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Connect to an endpoint for the length of a block."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with await anyio.connect_tcp(parts.hostname, parts.port) as stream:
        yield Connection(stream, parts.netloc, parts.path)
