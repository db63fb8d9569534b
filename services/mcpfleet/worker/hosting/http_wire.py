"""HTTP below a source's link: its client, bounded bodies and streams, and failures in words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Final

import httpx2
from mcp_types import JSONRPCMessage
from pydantic_core import to_json

from mcpfleet.sources.source import Source

_CONNECTS_WITHIN: Final = 10.0
"""Seconds in which a source's host takes a connection."""
_WRITES_WITHIN: Final = 30.0
"""Seconds without progress in which it must read a part of a request."""
_KEPT: Final = 20
"""Connections that are kept for the next request."""
_KEPT_FOR: Final = 2.0
"""Seconds for which they are kept: a server that closes one just then makes the request uncertain, and most wait 5."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
"""Seconds between two GET streams that a source ends, where it names none."""

_MEANINGS: Final[Mapping[type[BaseException], str]] = {
    socket.gaierror: "nobody knows its host name",
    ConnectionRefusedError: "it refuses connections",
    httpx2.ConnectTimeout: "its host did not answer in time",
}


class AnswerTooLarge(Exception):
    """Raised when a body or an event is larger than `message_limit`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer has over {limit} bytes (message_limit)")


@cache
def _certificates() -> ssl.SSLContext:
    """Return the authorities that are trusted; reading them takes 20 ms."""
    return httpx2.create_ssl_context()


def client_for(source: Source, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    """Return a client for one link; answers may take as long as their calls, which have limits of their own."""
    return httpx2.AsyncClient(
        auth=auth,
        verify=_certificates(),
        follow_redirects=False,
        timeout=httpx2.Timeout(None, connect=min(_CONNECTS_WITHIN, source.start_within), write=_WRITES_WITHIN),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=_KEPT_FOR),
    )


async def body_of(response: httpx2.Response, limit: int) -> bytes:
    """Read a body.

    Raises:
        AnswerTooLarge: it has more bytes.
        httpx2.TransportError: it broke off.
    """
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > limit:
            raise AnswerTooLarge(limit)
        parts.append(part)
    return b"".join(parts)


async def events_of(response: httpx2.Response, limit: int) -> AsyncIterator[httpx2.ServerSentEvent]:
    """Read a stream of events.

    Raises:
        AnswerTooLarge: an event has more bytes.
        httpx2.TransportError: it broke off.
    """
    try:
        async for event in httpx2.EventSource(response, max_event_size=limit):
            yield event
    except httpx2.SSEError as error:
        raise AnswerTooLarge(limit) from error


@dataclass
class Cursor:
    """The place in a stream of events."""

    last: str | None = None
    given: float | None = None
    """Seconds that the source wants between two streams."""

    @property
    def pause(self) -> float:
        """Seconds before the next stream."""
        return FIRST_PAUSE if self.given is None else self.given

    def note(self, event: httpx2.ServerSentEvent) -> None:
        """Come to an event."""
        if event.id:
            self.last = event.id
        if event.retry is not None:
            self.given = min(event.retry / 1000, LONGEST_PAUSE)


def to_bytes(message: JSONRPCMessage) -> bytes:
    """Return a message as the body of a request."""
    return to_json(message.model_dump(by_alias=True, exclude_unset=True))


def kind_of(response: httpx2.Response) -> str:
    """Return the type of a body, without parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


def is_stream(response: httpx2.Response) -> bool:
    """Return whether an answer is a stream of events."""
    return response.is_success and kind_of(response) == "text/event-stream"


def is_within(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Return whether a URL is in the origin of another, and brings no name or password of its own."""
    origin = (url.scheme, url.host, url.port)
    return origin == (other.scheme, other.host, other.port) and other.userinfo in (b"", url.userinfo)


def status_text(response: httpx2.Response) -> str:
    """Name a status, and say what to do about one that is common."""
    status = response.status_code
    try:
        named = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        named = f"HTTP {status}"
    if (following := response.next_request) is not None:
        to = following.url.copy_with(userinfo=b"", query=None, fragment=None)
        return f"{named} to {to}, and no credential follows there: write that URL if it is the server"
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return f"{named}: it wants a credential, or refuses the one of `auth` or `headers`"
        case HTTPStatus.FORBIDDEN:
            return f"{named}: the credential of `auth` or `headers` does not allow it"
        case HTTPStatus.NOT_FOUND | HTTPStatus.METHOD_NOT_ALLOWED:
            return f"{named}: no MCP server over Streamable HTTP is at this path, which often ends in /mcp"
        case _:
            return named


def why_unreachable(error: BaseException) -> str:
    """Say why nothing could be sent, after the URL."""
    causes = list(_causes(error))
    return f"cannot be reached: {next(filter(None, map(_in_words, causes)), str(causes[-1]) or repr(causes[-1]))}"


def _in_words(cause: BaseException) -> str:
    """Say what a cause means; empty for one that says so itself."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(cause, httpx2.ProxyError):
        return f"its proxy refuses: {cause}"
    return next((text for kind, text in _MEANINGS.items() if isinstance(cause, kind)), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those behind it."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
        pending += [one for one in (each.__cause__, each.__context__) if one is not None]
