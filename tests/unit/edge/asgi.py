"""One HTTP request as a server hands it to an edge, and the answer as the edge hands it back."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.protocol.exchange import Exchange as ServerExchange
from mcpfleet.edge.protocol.revision import NEWEST
from mcpfleet.telemetry.spans import Span
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire.envelope import Envelope

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
MODERN = "2026-07-28"


_NOTHING: Mapping[str, Any] = {}


def request(
    method: str, params: Mapping[str, Any] = _NOTHING, *, identifier: Any = 1, meta: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """A request of the modern era, as its client would send it, with further members of `_meta`."""
    own = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, **meta}
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": own}}


def call(
    name: str = "search",
    arguments: Mapping[str, Any] = _NOTHING,
    *,
    identifier: Any = 1,
    meta: Mapping[str, Any] = _NOTHING,
) -> dict[str, Any]:
    """A `tools/call`."""
    return request("tools/call", {"name": name, "arguments": arguments}, identifier=identifier, meta=meta)


@dataclass
class Post:
    """A request that a test may spoil before it is sent."""

    message: Any = field(default_factory=call)
    headers: dict[str, str | None] = field(default_factory=dict)
    """Beside those that mirror the message; None takes one away."""
    method: str = "POST"
    path: str = "/mcp"
    raw: bytes | None = None
    """The body, where it is not the message."""
    http_version: str = "1.1"

    @property
    def body(self) -> bytes:
        """The bytes that are sent."""
        return json.dumps(self.message).encode() if self.raw is None else self.raw

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The headers, as a server gives them."""
        headers: dict[str, str | None] = {**self._own(), **self.headers}
        return [(name.encode(), value.encode()) for name, value in headers.items() if value is not None]

    def _own(self) -> dict[str, str]:
        own = {
            "host": "127.0.0.1:8000",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        params = self.message.get("params", {}) if isinstance(self.message, dict) else {}
        meta = params.get("_meta") if isinstance(params, dict) else None
        mirrored = {
            "mcp-protocol-version": meta.get(VERSION_KEY) if isinstance(meta, dict) else None,
            "mcp-method": self.message.get("method") if isinstance(self.message, dict) else None,
            "mcp-name": params.get("name") if isinstance(params, dict) else None,
        }
        return own | {name: value for name, value in mirrored.items() if isinstance(value, str)}


class Exchange:
    """The client's side of one request: it reads what comes, and leaves when it is told to."""

    def __init__(self, post: Post, *, parts: list[bytes] | None = None) -> None:
        self.scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": post.method,
            "path": post.path,
            "headers": post.pairs(),
            "client": ("127.0.0.1", 50_000),
            "http_version": post.http_version,
        }
        self.sent: list[MutableMapping[str, Any]] = []
        self._reads = anyio.Event()
        self._reads.set()
        self._parts = deque(parts if parts is not None else [post.body])
        self._gone = anyio.Event()
        self._news = anyio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        """ASGI's way in."""
        if self._parts:
            part = self._parts.popleft()
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's way out."""
        await self._reads.wait()
        self.sent.append(message)
        self._news.set()

    def client(self, *, closing: bool = False) -> ServerExchange:
        """The same as the edge sees it."""
        return ServerExchange(self.scope, self.receive, self.send, closing=closing, write_timeout=5.0)

    def pause(self) -> None:
        """Read nothing, so that the server's `send` waits."""
        self._reads = anyio.Event()

    def go_on(self) -> None:
        """Read again."""
        self._reads.set()

    def leave(self) -> None:
        """Close the client's side."""
        self._parts.clear()
        self._gone.set()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until what was sent has come so far."""
        with anyio.fail_after(5):
            while not holds():
                self._news = anyio.Event()
                await self._news.wait()

    async def events(self, count: int) -> list[Any]:
        """Wait for so many events of a stream, and read them."""
        await self.until(lambda: len(self.read_events()) >= count)
        return self.read_events()

    def read_events(self) -> list[Any]:
        """The events that have come."""
        data = [line for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [json.loads(line.removeprefix(b"data: ")) for line in data]

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole."""
        return any(message["type"] == "http.response.body" and not message.get("more_body") for message in self.sent)

    @property
    def status(self) -> int:
        """The answer's status."""
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The answer's headers, those that the server itself adds left out."""
        names = [name for name, _ in self.sent[0]["headers"]]
        assert len(names) == len(set(names)), "a header is sent twice"
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        """The part of the answer's body that has come."""
        return b"".join(message["body"] for message in self.sent if message["type"] == "http.response.body")

    @property
    def json(self) -> Any:
        """The body of an answer that is JSON."""
        assert self.headers[b"content-type"] == b"application/json"
        return json.loads(self.body)


def admitted(message: Envelope, view: View, caller: Principal = ANONYMOUS, *, endpoint: str = "mcp") -> ServerExchange:
    """A request of 2026-07-28 whose caller is admitted."""
    exchange = Exchange(Post()).client()
    exchange.endpoint, exchange.id, exchange.message = endpoint, message.id or 0, message
    exchange.revision, exchange.span = NEWEST, Span(TraceContext.fresh(sampled=False))
    exchange.caller, exchange.view = caller, view
    return exchange
