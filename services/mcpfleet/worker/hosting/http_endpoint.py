"""The URL of a source over HTTP: its session, the headers of each message, and redirects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx2
from mcp_types import JSONRPCRequest

from mcpfleet.sources.source import Url
from mcpfleet.wire.parameter_headers import NAMED, encode
from mcpfleet.wire.protocol import PROTOCOL_VERSION_META_KEY
from mcpfleet.worker.hosting.http_credentials import HANDSHAKE, headers_of
from mcpfleet.worker.hosting.http_wire import Cursor, is_within
from mcpfleet.worker.upstream import UpstreamError

HANDSHAKES: Final = frozenset({"initialize", "server/discover"})
"""They run nothing: a redirect of one is followed, and a token may be fetched for it."""
SESSION: Final = "Mcp-Session-Id"
_VERSION: Final = "MCP-Protocol-Version"
_LEAVES_WITHIN: Final = 2.0
"""Seconds in which a source hears that its session ends."""


@dataclass(eq=False)
class Post:
    """A request that runs."""

    request: JSONRPCRequest
    is_modern: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_begun: bool = False
    """Whether a byte of it may have been written."""
    refusal: UpstreamError | None = None
    """The source's answer, if that is an error."""


class HttpEndpoint:
    """Sends the messages of one connection."""

    def __init__(self, way: Url, client: httpx2.AsyncClient) -> None:
        self._url = httpx2.URL(way.url)
        self._own_headers = headers_of(way)
        self._client = client
        self.session: str | None = None
        self.revision: str | None = None
        """The revision of 2025 that the handshake has agreed on."""

    def headers(self, post: Post | None = None, stamped: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers of a message; the protocol's own come last, so that no configuration changes them."""
        headers = {**self._own_headers, "Accept": "application/json, text/event-stream"}
        headers["Content-Type"] = "application/json"
        params = (post.request.params or {}) if post is not None else {}
        meta = params.get("_meta") or {}
        if isinstance(trace := meta.get("traceparent"), str):
            headers["traceparent"] = trace
        if post is None or not post.is_modern:
            if self.session is not None:
                headers[SESSION] = self.session
            if self.revision is not None:
                headers[_VERSION] = self.revision
            return headers
        method = post.request.method
        headers |= {_VERSION: meta[PROTOCOL_VERSION_META_KEY], "Mcp-Method": method, **(stamped or {})}
        if isinstance(name := params.get(NAMED.get(method, "")), str):
            headers["Mcp-Name"] = encode(name)
        return headers

    def get_headers(self, cursor: Cursor) -> dict[str, str]:
        """Return the headers of a GET, which begins at a place of a stream."""
        headers = {**self.headers(), "Accept": "text/event-stream", "Cache-Control": "no-store"}
        del headers["Content-Type"]
        return headers | ({"Last-Event-ID": cursor.last} if cursor.last else {})

    @asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None, post: Post | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a message, and yield the answer's beginning.

        A redirect within the origin is followed for a handshake alone, and holds for what comes after it. So no
        credential leaves the origin, and no call is sent twice.
        """

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            if post is not None and event.endswith("send_request_headers.started"):
                sent = info.get("request")
                if getattr(sent, "method", b"") == b"POST":  # a proxy's CONNECT is no byte of it
                    post.is_begun = True

        extensions: dict[str, Any] = {"trace": trace}
        is_handshake = post is not None and post.request.method in HANDSHAKES
        if is_handshake:
            extensions[HANDSHAKE] = True
        for _ in range(self._client.max_redirects):
            built = self._client.build_request(method, self._url, headers=headers, content=body, extensions=extensions)
            response = await self._client.send(built, stream=True)
            following = response.next_request
            if (
                not is_handshake
                or following is None
                or following.method != method
                or not is_within(self._url, following.url)
            ):
                break
            await response.aclose()
            self._url = following.url
        try:
            yield response
        finally:
            await response.aclose()

    async def leave(self) -> None:
        """Tell the source that its session is over."""
        if self.session is None:
            return
        # A source that is away has no session either.
        with anyio.move_on_after(_LEAVES_WITHIN, shield=True), suppress(Exception):
            async with self.exchange("DELETE", self.headers()):
                pass
