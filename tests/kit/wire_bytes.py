"""Requests of a conforming client as bytes, and answers read from a socket, for what must cost little or send oddly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

VERSION: Final = "2026-07-28"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def meta(client: str, capabilities: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
    """The client's description in a request, by the client's name."""
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities),
    }


def message(method: str, params: Mapping[str, Any], said: Mapping[str, Any], *, identifier: int = 1) -> bytes:
    """The body of a request; `said` is its `meta`."""
    body = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": said}}
    return json.dumps(body).encode()


def lines(method: str, name: str | None = None) -> str:
    """The header lines that say again what is in the body (T3)."""
    named = "" if name is None else f"Mcp-Name: {name}\r\n"
    return f"MCP-Protocol-Version: {VERSION}\r\nMcp-Method: {method}\r\n{named}"


class Posts:
    """Requests to one endpoint; what all begin with is put together once."""

    def __init__(self, authority: str, path: str) -> None:
        self._begin = (
            f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
        )

    def post(self, body: bytes, lines: str, *, length: str | None = None) -> bytes:
        """A request with these header lines beside those that all have; `length` is for one that lies about its own."""
        return f"{self._begin}{lines}Content-Length: {length or len(body)}\r\n\r\n".encode() + body


async def read_body(reader: asyncio.StreamReader) -> bytes:
    """Read an answer, of known length or in chunks, and return its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, found, rest = head.partition(b"content-length: ")
    if found:
        return await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
