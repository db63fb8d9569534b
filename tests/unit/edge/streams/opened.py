"""A stream of a test's own, with a client at its other end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.edge.protocol.exchange import Exchange as Listening
from mcpfleet.edge.protocol.revision import NEWEST
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.streams.stream import Stream, StreamBounds
from mcpfleet.edge.transport.http_exchange import ClientStalled
from mcpfleet.views.rights import Policy, Rights
from mcpfleet.views.view import View, view_of
from mcpfleet.wire.filter import Filter
from tests.unit.edge.asgi import Exchange, Post
from tests.unit.edge.played_edge import tool

URI = "library://books/1"


def seen(*names: str, number: int = 1) -> View:
    """A caller's view of these tools."""
    listed = tuple(Listed(pool="library", digest=tool(name).digest, definition=tool(name)) for name in names)
    snapshot = Snapshot(endpoint="mcp", number=number, name="library", version="1", listed=listed)
    return view_of(snapshot, Policy.of(snapshot, hides_uncovered=False), Rights(is_named=False))


@dataclass
class Open:
    """A stream, its client, and how it ended."""

    stream: Stream
    exchange: Exchange
    ends: list[Any] = field(default_factory=list)

    async def run(self) -> None:
        try:
            self.ends.append(await self.stream.run())
        except ClientStalled:
            self.ends.append(ClientStalled)

    async def told(self, count: int) -> list[str]:
        """Wait for so many messages, and say what each is."""
        return [message.get("method", "the end") for message in await self.exchange.events(count)]


def stream(honoured: Filter | None = None, *, write_timeout: float = 5.0, **settings: Any) -> Open:
    """A stream of the tool list and of one resource, unless told otherwise, that has yet to run."""
    exchange = Exchange(Post(), parts=[])
    request = Listening(exchange.scope, exchange.receive, exchange.send, closing=False, write_timeout=write_timeout)
    request.endpoint, request.revision, request.view = "mcp", NEWEST, seen("search")
    chosen: dict[str, Any] = {"keepalive": 60.0, "lasts": 60.0, "pending": 4} | settings
    lease = chosen.pop("lease", StreamLease(ANONYMOUS))
    wanted = Filter(frozenset({"tools"}), (URI,)) if honoured is None else honoured
    made = Stream(request, b'"s"', lease=lease, honoured=wanted, bounds=StreamBounds(**chosen))
    return Open(made, exchange)
