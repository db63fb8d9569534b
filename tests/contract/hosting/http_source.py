"""A server of MCP over HTTP inside a test, in raw bytes: it keeps each request, and answers as the test says.

Its tools: `echo` returns its arguments and `_meta`; `sleep` waits for its end or a cancel; `steps` reports progress;
`fail` answers with the error in its arguments; `touch` tells that the watched resources have changed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

MODERN: Final = "2026-07-28"
SCHEMA: Final = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
TLS: Final = b"\x16"
"""The first byte of a handshake of TLS, which it does not speak."""
CAPABILITIES: Final = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


@dataclass
class Received:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def asks(self) -> str:
        """The JSON-RPC method, or that of HTTP."""
        return self.body["method"] if isinstance(self.body, dict) and "method" in self.body else self.method


@dataclass
class Reply:
    """What is answered: a body, or events whose stream then ends, is cut, or stays open."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    events: list[str] | None = None
    cut: bool = False
    """Close the connection without an end; without a body or events, at once."""


class Refused(Exception):
    """An error of JSON-RPC."""


Rule = Callable[[Received], Reply | Awaitable[Reply | None] | None]
"""Answers a request in place of the server; None leaves it to the server."""


def event(message: Mapping[str, Any], identifier: str = "") -> str:
    """An event of a stream."""
    return (f"id: {identifier}\n" if identifier else "") + f"data: {json.dumps(message)}\n\n"


def result(received: Received, value: Any) -> dict[str, Any]:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": received.body["id"], "result": value}


def error(received: Received, code: int, message: str) -> dict[str, Any]:
    """The same with an error."""
    return {"jsonrpc": "2.0", "id": received.body["id"], "error": {"code": code, "message": message}}


class HttpSource:
    """The server; `era` is the one that it speaks."""

    def __init__(self, era: str = "2026") -> None:
        self.era = era
        self.port = 0
        self.rule: Rule = lambda _: None
        self.received: list[Received] = []
        self.tools: list[dict[str, Any]] = [
            {"name": name, "inputSchema": SCHEMA, "x-unknown": {"kept": None}}
            for name in ("echo", "sleep", "steps", "fail", "touch")
        ]
        self.executions = 0
        self.sessions = 0
        self.session: str | None = None
        self.watched: list[str] = []
        self.cancels: list[Any] = []
        self.order: list[str] = []
        """The streams of changes, as they were opened and closed."""
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def asked(self, method: str) -> list[Received]:
        """The requests with this method of JSON-RPC or HTTP."""
        return [each for each in self.received if each.asks == method]

    # -- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take connections, on the same port as before."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and cut those that are there."""
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell something on every open stream."""
        for writer in list(self._streams):
            with suppress(OSError):
                await _chunk(writer, event({"jsonrpc": "2.0", "method": method, "params": params}))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # `stop` cancels it
                while (received := await _read(reader, writer)) is not None:
                    self.received.append(received)
                    await self._until_it_leaves(reader, self._answer(received, writer))
        finally:
            self._connections.discard(task)
            self._streams.discard(writer)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _until_it_leaves(self, reader: asyncio.StreamReader, answer: Awaitable[None]) -> None:
        """Answer, and stop when the client closes: that cancels since 2026."""
        answering = asyncio.ensure_future(answer)
        while not answering.done():
            await asyncio.wait({answering}, timeout=0.02)
            if reader.at_eof() and not answering.done():
                answering.cancel()
                await asyncio.wait({answering})
                raise OSError("the client has closed")
        await answering

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        ruled = self.rule(received)
        reply = await ruled if isinstance(ruled, Awaitable) else ruled
        if reply is None:
            reply = await self._serve(received, writer)
        if reply is None:
            return
        if reply.cut and reply.body is None and reply.events is None:
            raise OSError("cut")
        if reply.events is not None:
            await _begin(writer, reply.status, {"Content-Type": "text/event-stream", **reply.headers})
            for each in reply.events:
                await _chunk(writer, each)
            if reply.cut:
                raise OSError("cut")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            await _whole(writer, reply)

    # -- what it serves -----------------------------------------------------------------------------------------------

    async def _serve(self, received: Received, writer: asyncio.StreamWriter) -> Reply | None:
        if received.method == "GET":
            await self._stream(writer)
        if received.method == "DELETE":
            return Reply(status=204)
        if received.asks == "notifications/cancelled":
            self.cancels.append(received.body["params"]["requestId"])
        if "id" not in received.body or "method" not in received.body:
            return Reply(status=202)
        is_known = self.session is None or received.headers.get("mcp-session-id") == self.session
        if not is_known and received.asks != "initialize":
            return Reply(error(received, -32600, "no such session"), 404)
        if received.asks == "subscriptions/listen" and self.era == "2026":
            self.watched = received.body["params"]["notifications"].get("resourceSubscriptions", [])
            await self._stream(writer, received)
        try:
            value = await self._result(received, writer)
        except Refused as refused:
            return Reply({"jsonrpc": "2.0", "id": received.body["id"], "error": refused.args[0]})
        if value is None:
            return None
        headers = {"Mcp-Session-Id": self.session} if received.asks == "initialize" and self.session else {}
        return Reply(result(received, value), headers=headers)

    async def _stream(self, writer: asyncio.StreamWriter, received: Received | None = None) -> None:
        await _begin(writer, 200, {"Content-Type": "text/event-stream"})
        if received is not None:
            told = {"_meta": {"io.modelcontextprotocol/subscriptionId": received.body["id"]}, "notifications": {}}
            acknowledged = {"method": "notifications/subscriptions/acknowledged", "params": told}
            await _chunk(writer, event({"jsonrpc": "2.0", **acknowledged}))
        self._streams.add(writer)
        self.order.append("opened")
        try:
            await asyncio.Event().wait()
        finally:
            self.order.append("closed")

    async def _result(self, received: Received, writer: asyncio.StreamWriter) -> Any:
        params = received.body.get("params", {})
        match received.asks:
            case "server/discover" if self.era == "2026":
                return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
            case "initialize" if self.era == "2025":
                self.sessions += 1
                self.session = f"session-{self.sessions}"
                named = {"name": "raw", "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": named}
            case "tools/list":
                return {"tools": self.tools}
            case "resources/list":
                return {"resources": [{"uri": "raw://one", "name": "one"}]}
            case "resources/subscribe":
                self.watched.append(params["uri"])
                return {}
            case "resources/read":
                return {"contents": [{"uri": params["uri"], "text": "read"}]}
            case "tools/call":
                self.executions += 1
                return await self._call(received, params, writer)
        raise Refused({"code": -32601, "message": "Method not found"})

    async def _call(self, received: Received, params: dict[str, Any], writer: asyncio.StreamWriter) -> Any:
        given = params.get("arguments", {})
        match params["name"]:
            case "echo":
                told = {"arguments": given, "meta": params.get("_meta"), "big": 12345678901234567890123}
                return {"content": [{"type": "hologram"}], "structuredContent": told, "unknown": {"kept": None}}
            case "fail":
                raise Refused(given["error"])
            case "sleep":
                try:
                    await asyncio.sleep(given.get("seconds", 30))
                except asyncio.CancelledError:
                    self.cancels.append(received.body["id"])
                    raise
            case "touch":
                for uri in self.watched:
                    await self.tell("notifications/resources/updated", {"uri": uri})
            case "steps":
                token = params["_meta"]["progressToken"]
                await _begin(writer, 200, {"Content-Type": "text/event-stream"})
                for number in (1, 2):
                    told = {"progressToken": token, "progress": number, "total": 2}
                    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}
                    await _chunk(writer, event(message))
                await _chunk(writer, event(result(received, {"content": []})))
                writer.write(b"0\r\n\r\n")
                return None
        return {"content": []}


@asynccontextmanager
async def http_source(era: str = "2026") -> AsyncIterator[HttpSource]:
    """A server for the length of a block."""
    source = HttpSource(era)
    await source.start()
    try:
        yield source
    finally:
        with anyio.CancelScope(shield=True):
            await source.stop()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Received | None:
    first = await reader.readexactly(1)
    if first == TLS:
        writer.write(b"HTTP/1.1 400 X\r\n\r\n")
        return None
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    is_json = headers.get("content-type", "").startswith("application/json") and body
    return Received(method, path, headers, json.loads(body) if is_json else body.decode())


async def _begin(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} X", "Transfer-Encoding: chunked", *(f"{name}: {headers[name]}" for name in headers)]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()


async def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    body = text.encode()
    writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
    await writer.drain()


async def _whole(writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = b"" if reply.body is None else json.dumps(reply.body).encode()
    kind = {"Content-Type": "application/json"} if reply.body is not None else {}
    headers = {**kind, "Content-Length": str(len(body)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {headers[name]}" for name in headers)]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
    if reply.cut:
        raise OSError("cut")
