"""An endpoint over Streamable HTTP: messages are posted, streams are read, and every failure becomes a sentence."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

import anyio
import httpx2

from mcpfleet.cli.stdio.lines import LONGEST
from mcpfleet.cli.stdio.messages import INTERNAL_ERROR, NotAMessage, RawMessage, read_message
from mcpfleet.process.errors import ConfigurationError

CONNECTED_WITHIN: Final = 5.0
"""Seconds for which an endpoint that refuses connections is tried again, while it starts anew."""
_PAUSE: Final = 0.2
"""Seconds between two attempts to connect."""
_CONNECTING: Final = 15.0
"""Seconds for one attempt."""
_SILENT_FOR: Final = 3600.0
"""Seconds for which an answer may be silent. A connection whose other end is gone is noticed in a minute."""
_MOST_CONNECTIONS: Final = 1_100
_KEPT_CONNECTIONS: Final = 16
_MOST_REDIRECTS: Final = 3
_KEEP_METHOD: Final = (307, 308)
_FIRST_RETRY: Final = 1.0
"""Seconds before a stream is resumed, unless the server says otherwise."""
_PROBES: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPALIVE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4))

Where: TypeAlias = Callable[[], Awaitable[str]]
"""Returns the endpoint's URL, once there is one."""
Secrets: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns the headers that an operator gave, as their files are now; raises ConfigurationError."""


class HttpFailure(Exception):
    """Raised when a request gets no answer of the protocol.

    Attributes:
        message: a sentence that says what to do.
        data: `error.data` for the client.
        code: the JSON-RPC code.
        status: the HTTP status; 0 without one.
    """

    def __init__(self, message: str, *, data: Any = None, code: int = INTERNAL_ERROR, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.code = code
        self.status = status


class _Body(httpx2.AsyncByteStream):
    """The body of a request, which tells how far it got."""

    def __init__(self, line: bytes, sent: Callable[[], None]) -> None:
        self._line = line
        self._sent = sent
        self.is_begun = False
        """Whether the server may have read a byte of it."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_begun = True
        yield self._line
        self._sent()


class Events:
    """The messages of one stream, and what is needed to resume it."""

    def __init__(self) -> None:
        self.last_id = ""
        """The id of the last event; empty if the server gives none."""
        self.retry = _FIRST_RETRY

    async def messages(self, response: httpx2.Response) -> AsyncGenerator[RawMessage, None]:
        """Yield each message until the stream ends.

        Raises:
            HttpFailure: the stream broke, or what came is not JSON-RPC.
        """
        try:
            async for event in httpx2.EventSource(response, max_event_size=LONGEST):
                self.last_id = event.id or self.last_id
                self.retry = event.retry / 1000 if event.retry is not None else self.retry
                if event.event == "message" and event.data:
                    yield read_message(event.data)
        except NotAMessage:
            raise HttpFailure("the server's stream has something that is not JSON-RPC") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise HttpFailure(_lost(str(response.request.url), error)) from None


class RemoteEndpoint:
    """An endpoint, with the connections to it."""

    def __init__(self, http: httpx2.AsyncClient, where: Where, secrets: Secrets) -> None:
        """Describe the endpoint.

        Args:
            http: a client as `http_client` makes it.
            where: returns its URL.
            secrets: returns further headers for each request.
        """
        self._http = http
        self._where = where
        self._secrets = secrets

    @asynccontextmanager
    async def request(
        self,
        method: str,
        headers: Mapping[str, str],
        line: bytes | None = None,
        sent: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request for the length of a block, in which the answer's head has arrived.

        Args:
            method: the HTTP method.
            headers: its headers, beside those of every request.
            line: the message that is posted.
            sent: is called when the server has all of the message.

        Raises:
            HttpFailure: there is no answer.
        """
        body = _Body(line, sent) if line is not None else None
        response = await self._send(method, headers, body, len(line or b""))
        try:
            _probe(response)
            yield response
        finally:
            with anyio.CancelScope(shield=True), suppress(Exception):
                await response.aclose()

    async def _send(self, method: str, headers: Mapping[str, str], body: _Body | None, length: int) -> httpx2.Response:
        began = anyio.current_time()
        while True:
            url = await self._where()
            try:
                secrets = self._secrets()
            except ConfigurationError as error:
                raise HttpFailure(f"nothing was sent: {error}") from None
            try:
                return await self._follow(method, url, {**secrets, **_headers(body, length), **headers}, body)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                # Nothing was sent, so it may be tried again.
                if anyio.current_time() - began > CONNECTED_WITHIN:
                    raise HttpFailure(
                        f"cannot connect to {url}: {_reason(error)}. Nothing was sent. Check that the server runs"
                    ) from None
                await anyio.sleep(_PAUSE)
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.ProxyError, httpx2.PoolTimeout) as error:
                raise HttpFailure(f"cannot connect to {url}: {_reason(error)}. Nothing was sent") from None
            except (httpx2.HTTPError, OSError) as error:
                if body is None or body.is_begun:
                    raise HttpFailure(_lost(url, error)) from None
                raise HttpFailure(f"the connection to {url} was lost before anything was sent: try again") from None

    async def _follow(self, method: str, url: str, headers: Mapping[str, str], body: _Body | None) -> httpx2.Response:
        """Send a request, also to where the same server redirects it: to a slash at the end, or to https."""
        target = httpx2.URL(url)
        for _ in range(_MOST_REDIRECTS):
            request = self._http.build_request(method, target, headers=headers, content=body)
            response = await self._http.send(request, stream=True, follow_redirects=False)
            location = response.headers.get("location", "")
            if response.status_code not in _KEEP_METHOD or not location:
                return response
            await response.aclose()
            to = target.join(location)
            if not _is_same_server(target, to):
                where = to.copy_with(userinfo=b"", query=None)
                raise HttpFailure(f"{url} redirects to another server, {where}: give that URL, if you trust it")
            target = to
        raise HttpFailure(f"{url} redirects more than {_MOST_REDIRECTS} times")


def http_client() -> httpx2.AsyncClient:
    """Return a client for an endpoint; it heeds the environment's proxies and certificates."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(_CONNECTING, read=_SILENT_FOR),
        limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=_KEPT_CONNECTIONS),
        default_encoding="utf-8",
    )


def _headers(body: _Body | None, length: int) -> dict[str, str]:
    accepted = {"Accept": "application/json, text/event-stream"}
    if body is None:
        return accepted
    return {**accepted, "Content-Type": "application/json", "Content-Length": str(length)}


async def read_body(response: httpx2.Response) -> bytes:
    """Read an answer that is no stream.

    Raises:
        HttpFailure: it is longer than a message may be, or the connection broke.
    """
    parts, length = [], 0
    try:
        async for part in response.aiter_bytes():
            length += len(part)
            if length > LONGEST:
                raise HttpFailure(f"the answer is longer than {LONGEST} bytes: ask for less at once")
            parts.append(part)
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise HttpFailure(_lost(str(response.request.url), error)) from None
    return b"".join(parts)


_UNCERTAIN: Final = "{url} answers with HTTP {status}: the request may have run; find out before you send it again"
_SAID: Final = {
    401: "{url} needs a token (401): give --token @FILE, or MCPFLEET_TOKEN",
    403: "{url} refuses this caller (403): its token may lack a scope, or the address may not be allowed",
    404: "{url} is not an endpoint (404): check its path, which is often /mcp",
    405: "{url} does not speak Streamable HTTP (405): check the URL",
    406: "{url} does not speak Streamable HTTP (406): check the URL",
    408: _UNCERTAIN,
    413: "the message is too long for {url} (413): send less at once",
    415: "{url} does not speak Streamable HTTP (415): check the URL",
    429: "{url} takes no more requests now (429): try again {wait}",
    500: _UNCERTAIN,
    502: _UNCERTAIN,
    503: "{url} has no capacity now (503): try again {wait}",
    504: _UNCERTAIN,
}
_INVALID_TOKEN: Final = "{url} does not take this token (401): renew the file of --token, or MCPFLEET_TOKEN"  # noqa: S105
_SAID_BY_CLASS: Final = {
    2: "{url} answers HTTP {status} without a result: it may not be an MCP server",
    3: "{url} redirects (HTTP {status}): give the URL of the endpoint itself",
}


def refusal(response: httpx2.Response) -> HttpFailure:
    """Explain an answer that is no message of the protocol, by its status."""
    status, retry = response.status_code, response.headers.get("retry-after", "")
    said = _SAID.get(status) or _SAID_BY_CLASS.get(status // 100, "{url} answers with HTTP {status}")
    if status == 401 and "invalid_token" in response.headers.get("www-authenticate", ""):
        said = _INVALID_TOKEN
    wait = f"in {retry} s" if retry.isdigit() else "later"
    data = {"status": status} | ({"retryAfter": retry} if retry else {})
    return HttpFailure(said.format(url=response.request.url, status=status, wait=wait), data=data, status=status)


def content_type(response: httpx2.Response) -> str:
    """Return the media type of an answer."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _lost(url: str, error: Exception) -> str:
    return (
        f"the connection to {url} was lost before the answer ({_reason(error)}): the request may have run;"
        " find out before you send it again"
    )


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_same_server(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether a redirect stays where the credentials may go: the same origin, or https on the same host."""
    if (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port):
        return not other.userinfo or other.userinfo == one.userinfo
    upgraded = (one.scheme, other.scheme) == ("http", "https") and one.port is None and other.port is None
    return upgraded and one.host == other.host and not other.userinfo


def _probe(response: httpx2.Response) -> None:
    """Have the system notice that the other end of a silent connection is gone."""
    stream = response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    if found is None:
        return
    with suppress(OSError, AttributeError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBES:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def log(sentence: str) -> None:
    """Tell the operator, on standard error."""
    sys.stderr.write(f"mcpfleet stdio: {sentence}\n")
    sys.stderr.flush()
