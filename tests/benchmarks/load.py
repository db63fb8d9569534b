"""A load on one endpoint over raw sockets, as a process of its own: `python load.py URL CONNECTIONS SECONDS`.

It prints one line of JSON: the calls that were answered rightly, the others, and the seconds that they took. A client
library would cost more than the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

import uvloop

TOOL = "add"
MESSAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": TOOL,
        "arguments": {"left": 2, "right": 3},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
RIGHT = b'"structuredContent":'


class Load:
    """Connections that call one after the other, until a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        body = json.dumps(MESSAGE).encode()
        self._request = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: tools/call\r\nMcp-Name: {TOOL}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.right = 0
        self.wrong = 0

    async def run(self, connections: int, seconds: float) -> None:
        """Call over so many connections for so long."""
        until = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(self._call(until))

    async def _call(self, until: float) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while time.perf_counter() < until:
            writer.write(self._request)
            body = await self._answer(reader)
            if RIGHT in body:
                self.right += 1
            else:
                self.wrong += 1
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, found, rest = head.partition(b"content-length: ")
        if found:
            return await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return body


async def main(url: str, connections: int, seconds: float) -> None:
    """Run the load, and print what came of it."""
    load = Load(url)
    started = time.perf_counter()
    await load.run(connections, seconds)
    elapsed = time.perf_counter() - started
    sys.stdout.write(json.dumps({"right": load.right, "wrong": load.wrong, "seconds": elapsed}) + "\n")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
