"""`/console`: a page that shows numbers from server-sent events; it changes nothing and needs no other host."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import anyio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from mcpfleet.console.feed import ConsoleFeed
from mcpfleet.console.own_views import View, view_of
from mcpfleet.process.host import authority_of, forms_of_host, is_among
from mcpfleet.process.service import Page

PATH: Final = "/console"
EVERY: Final = 1.0
"""Seconds between two events."""
WRITE_WITHIN: Final = 10.0
"""Seconds that a browser may take to read one event."""
LIFETIME: Final = 3600.0
"""Seconds after which a stream ends; the page opens another by itself."""
_FILES: Final = Path(__file__).parent / "files"
_TYPES: Final = {".html": b"text/html; charset=utf-8", ".css": b"text/css", ".js": b"text/javascript"}
_POLICY: Final = (
    *(b"default-src 'none'", b"script-src 'self'", b"style-src 'self'", b"connect-src 'self'", b"img-src data:"),
    *(b"base-uri 'none'", b"form-action 'none'", b"frame-ancestors 'none'"),
)
_GUARDS: Final = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"; ".join(_POLICY)),
]


class ConsolePage:
    """The page, its two files, and its stream."""

    def __init__(self, feed: ConsoleFeed, hosts: Iterable[str]) -> None:
        """Serve a console under these host names, besides localhost and addresses."""
        self._feed = feed
        self._hosts = frozenset(form for each in hosts for form in forms_of_host(each))

    def pages(self) -> dict[str, Page]:
        """Return the pages by their paths."""
        return {
            PATH: self._file("console.html"),
            f"{PATH}/console.css": self._file("console.css"),
            f"{PATH}/console.js": self._file("console.js"),
            f"{PATH}/events": self._guarded(self._events),
        }

    def _file(self, name: str) -> Page:
        path = _FILES / name
        body, media_type = path.read_bytes(), _TYPES[path.suffix]

        async def answer(scope: HTTPScope, _receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            await _answer(scope, send, 200, media_type, body)

        return self._guarded(answer)

    def _guarded(self, page: Page) -> Page:
        """Refuse foreign host names: a foreign page could point its own name here, and read everything."""

        async def answer(scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            if is_ours(_host(scope), self._hosts):
                await page(scope, receive, send)
            else:
                await _answer(scope, send, 403, b"text/plain", b"MCPFLEET_CONSOLE_HOSTS does not name this host\n")

        return answer

    async def _events(self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Send the view that the query names, until the browser leaves or stops reading, the process ends, or the
        lifetime is over."""
        if scope["method"] == "HEAD":
            await _answer(scope, send, 200, b"text/event-stream", b"")
        elif not self._feed.enter():
            await _answer(scope, send, 503, b"text/plain", b"too many consoles are open, or the process ends\n")
        else:
            try:
                await self._stream(view_of(scope["query_string"]), receive, send)
            finally:
                self._feed.leave()

    async def _stream(self, view: View | None, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        headers = [(b"content-type", b"text/event-stream"), *_GUARDS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with anyio.move_on_after(LIFETIME):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                while not self._feed.over.is_set():
                    event = b"data: %b\n\n" % self._feed.drawn(view)
                    with anyio.move_on_after(WRITE_WITHIN) as patience:
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                    if patience.cancelled_caught:
                        tasks.cancel_scope.cancel()
                    with anyio.move_on_after(EVERY):
                        await self._feed.over.wait()
                tasks.cancel_scope.cancel()
        with anyio.move_on_after(WRITE_WITHIN):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: ASGIReceiveCallable, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _answer(scope: HTTPScope, send: ASGISendCallable, status: int, media_type: bytes, body: bytes) -> None:
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *_GUARDS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    content = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _host(scope: HTTPScope) -> str:
    found = [value for name, value in scope["headers"] if name == b"host"]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def is_ours(host: str, names: Collection[str]) -> bool:
    """Return whether a request's host is an address, localhost, or one of these names, as `forms_of_host` has them."""
    parts = authority_of(host)
    if parts is None:
        return False
    name = parts[0]
    if name == "localhost" or is_among(parts, names):
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
