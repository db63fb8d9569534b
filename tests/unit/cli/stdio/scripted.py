"""An HTTP server whose answers a test writes, and a pump between two pipes that speaks with it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import h11

from mcpfleet.cli.stdio.endpoint import RemoteEndpoint, http_client
from mcpfleet.cli.stdio.lines import LineReader, LineWriter
from mcpfleet.cli.stdio.pump import Pump

WITHIN: Final = 20.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""
MODERN: Final = "2026-07-28"


@dataclass
class Asked:
    """A request that the server got, and its answer as it is written."""

    method: str
    headers: Mapping[str, str]
    body: bytes
    _send: Callable[[h11.Event], Awaitable[None]]
    gone: anyio.Event = field(default_factory=anyio.Event)
    """Set when the client has closed the connection."""

    @property
    def message(self) -> Any:
        """The message that was posted."""
        return json.loads(self.body)

    async def reply(self, status: int, body: bytes | str | Mapping[str, Any] = b"", **headers: str) -> None:
        """Answer with a whole body; a mapping is JSON."""
        kind = "application/json" if isinstance(body, Mapping) else "text/plain"
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body
        content = content.encode() if isinstance(content, str) else content
        head = {"content-type": kind, "content-length": str(len(content))}
        head |= {name.replace("_", "-"): value for name, value in headers.items()}
        await self._send(h11.Response(status_code=status, headers=list(head.items())))
        await self._send(h11.Data(data=content))
        await self._send(h11.EndOfMessage())

    async def answer(self, result: Mapping[str, Any], **headers: str) -> None:
        """Answer with a result."""
        await self.reply(
            200,
            {"jsonrpc": "2.0", "id": self.message["id"], "result": result},
            content_type="application/json",
            **headers,
        )

    async def stream(self, **headers: str) -> None:
        """Begin a stream."""
        head = {
            "content-type": "text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        await self._send(h11.Response(status_code=200, headers=list(head.items())))

    async def event(self, data: Any, **fields: str) -> None:
        """Send an event; a text goes as it is."""
        lines = (data if isinstance(data, str) else json.dumps(data)).split("\n")
        told = [*(f"{name}: {value}" for name, value in fields.items()), *(f"data: {line}" for line in lines)]
        await self._send(h11.Data(data="\n".join([*told, "", ""]).encode()))

    async def end(self) -> None:
        """End the stream."""
        await self._send(h11.EndOfMessage())


Script = Callable[[Asked], Awaitable[None]]


@asynccontextmanager
async def server(script: Script) -> AsyncIterator[str]:
    """Serve HTTP for the length of a block; yields the URL.

    A script that returns without an end cuts the connection.
    """
    handlers: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            with suppress(ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                await _connection(script, reader, writer)
        finally:
            writer.close()
            handlers.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    finally:
        listening.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _connection(script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    http = h11.Connection(h11.SERVER)

    async def send(event: h11.Event) -> None:
        writer.write(http.send(event) or b"")
        await writer.drain()

    while True:
        asked = await _read(http, reader, send)
        if asked is None:
            return
        watcher = asyncio.create_task(_watch(reader, asked))
        try:
            await script(asked)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return
        http.start_next_cycle()


async def _read(
    http: h11.Connection, reader: asyncio.StreamReader, send: Callable[[h11.Event], Awaitable[None]]
) -> Asked | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Asked(head.method.decode(), headers, body, send)
        else:
            return None


async def _watch(reader: asyncio.StreamReader, asked: Asked) -> None:
    if not await reader.read(1):
        asked.gone.set()


class Client:
    """The client's end of the two pipes."""

    def __init__(self, into: int, out_of: int) -> None:
        self._into = into
        self._lines = LineReader(out_of).lines()

    async def send(self, message: Any) -> None:
        """Send a message; bytes go as they are, with a line end."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        await anyio.to_thread.run_sync(os.write, self._into, line + b"\n")

    async def ask(self, identifier: Any, method: str, params: Any = None, *, modern: bool = True) -> None:
        """Send a request."""
        params = dict(params or {})
        if modern:
            params["_meta"] = {"io.modelcontextprotocol/protocolVersion": MODERN}
        await self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})

    async def tell(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def line(self) -> bytes:
        """Return the next line."""
        with anyio.fail_after(WITHIN):
            line = await anext(self._lines)
        assert isinstance(line, bytes)
        return line

    async def hear(self) -> Any:
        """Return the next message."""
        return json.loads(await self.line())

    def close(self) -> None:
        """End the input of the pump."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1


@dataclass
class Pumped:
    """A pump that runs, its client, and when it has ended."""

    client: Client
    pump: Pump
    ended: anyio.Event


@asynccontextmanager
async def pumping(
    script: Script, secrets: Callable[[], Mapping[str, str]] = dict, url: str | None = None
) -> AsyncIterator[Pumped]:
    """Run a pump before a scripted server for the length of a block."""
    received, into = os.pipe()
    out_of, sent = os.pipe()
    async with server(script) as served, http_client() as http, anyio.create_task_group() as tasks:

        async def where() -> str:
            return url or served

        pump, ended = Pump(LineReader(received), LineWriter(sent), RemoteEndpoint(http, where, secrets)), anyio.Event()

        async def run() -> None:
            await pump.run()
            ended.set()

        tasks.start_soon(run)
        client = Client(into, out_of)
        try:
            yield Pumped(client, pump, ended)
        finally:
            client.close()
            with anyio.move_on_after(WITHIN, shield=True):
                await ended.wait()
            tasks.cancel_scope.cancel()
    for descriptor in (received, sent, out_of):
        os.close(descriptor)
