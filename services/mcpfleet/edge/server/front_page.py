"""The page for a browser: what this is, the endpoints, how to connect a client, where the console is.

It stands at `/`, and at each endpoint's own path, since people paste the URL that a client needs. There it names no
other endpoint.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html import escape
from typing import Final
from urllib.parse import urlsplit

from mcpfleet.contracts.access import resource_of
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.process.host import is_loopback
from mcpfleet.wire.headers import Headers

PATH: Final = "/"
"""No endpoint can have it."""
_HTML: Final = (b"content-type", b"text/html; charset=utf-8")
_MOST_RANGES: Final = 64
"""Ranges of an `Accept` that are looked at."""
_STYLE: Final = """
:root { color-scheme: light dark; --page: #f6f7f9; --text: #1b1f24; --card: #ffffff; --link: #0b57d0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #111418; --text: #e6e9ed; --card: #1a1f25; --link: #8ab4f8; }
}
body { max-width: 44rem; margin: 0 auto; padding: 1.5rem 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.1rem; }
a { color: var(--link); }
pre { padding: 0.7rem; overflow-x: auto; background: var(--card); }
code { font: 0.9rem/1.5 ui-monospace, monospace; }
"""
_GUARDS: Final = {
    "Vary": "Accept",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "; ".join(
        (
            f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'",
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        )
    ),
}


class FrontPage:
    """Answers a browser. Other clients get what they get at any path, with an endpoint or without."""

    def __init__(self, settings: EdgeSettings, hosts: AllowedHosts, console_url: str) -> None:
        """Describe the page.

        Args:
            settings: the edge's.
            hosts: the allowed Hosts and Origins.
            console_url: where the console is; empty where it is off.
        """
        self._settings = settings
        self._shown = {PATH: settings.endpoints} | {
            each.path + slash: {name: each} for name, each in settings.endpoints.items() for slash in ("", "/")
        }
        self._hosts = hosts
        # On an address that this machine alone reaches, the link is for those who are at this machine.
        self._console_url = console_url if is_loopback(urlsplit(console_url).hostname or "") else ""

    def takes(self, exchange: HttpExchange) -> bool:
        """Return whether a request is a browser's for the page."""
        return (
            exchange.path in self._shown and exchange.http_method in ("GET", "HEAD") and _wants_html(exchange.headers)
        )

    async def answer(self, exchange: HttpExchange) -> None:
        """Send the page.

        Raises:
            Rejection: 403 for another Host or Origin.
        """
        self._hosts.check_host(exchange.headers)
        self._hosts.check_origin(exchange.headers)
        host = exchange.headers.all(b"host")[0].decode("latin-1")
        page = self._page(host, self._shown[exchange.path])
        await exchange.answer(200, page.encode(), _GUARDS, _HTML)

    def _page(self, host: str, endpoints: Mapping[str, Endpoint]) -> str:
        title = next((each.title for each in endpoints.values() if each.title), "An MCP server")
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{_STYLE}</style>\n</head>\n'
            f"<body>\n<main>\n<h1>{escape(title)}</h1>\n"
            f"{''.join(self._parts(host, endpoints))}</main>\n</body>\n</html>\n"
        )

    def _parts(self, host: str, endpoints: Mapping[str, Endpoint]) -> Iterator[str]:
        base = self._settings.public_url or f"http://{host}"
        urls = {name: resource_of(base, each.path) for name, each in endpoints.items()}
        yield (
            "<p>This is a server of the <a href='https://modelcontextprotocol.io'>Model Context Protocol</a>, "
            "run by mcpfleet. It is for MCP clients; a browser sees this page only.</p>\n"
        )
        yield f"<h2>{'Endpoint' if len(urls) == 1 else 'Endpoints'}</h2>\n<ul>\n"
        for name, url in urls.items():
            about = endpoints[name].title
            yield f"<li><code>{escape(url)}</code>{f': {escape(about)}' if about else ''}</li>\n"
        yield "</ul>\n<h2>Connect a client</h2>\n"
        if self._settings.authorization != "none":
            yield "<p>Clients need a token: the answer to a request without one says where to get it.</p>\n"
        name, url = next(iter(urls.items()))
        yield "<p>List the tools, or call one, from a terminal:</p>\n"
        yield _commands(f"mcpfleet list {url}", f"mcpfleet call {url} TOOL NAME=VALUE")
        yield "<p>Claude Code:</p>\n"
        yield _commands(f"claude mcp add --transport http {name} {url}")
        yield "<p>Clients that are configured in JSON take the URL:</p>\n"
        yield _commands(f'{{"mcpServers": {{"{name}": {{"type": "http", "url": "{url}"}}}}}}')
        if self._console_url and is_loopback(urlsplit(f"//{host}").hostname or ""):
            link = escape(self._console_url)
            yield f'<h2>Console</h2>\n<p><a href="{link}">{link}</a> shows the fleet as it is now.</p>\n'


def _commands(*lines: str) -> str:
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>\n"


def _wants_html(headers: Headers) -> bool:
    """Return whether a client names HTML among what it accepts, and no stream of events: that one speaks MCP."""
    ranges = b",".join(headers.all(b"accept")).decode("latin-1").lower().split(",", _MOST_RANGES)[:_MOST_RANGES]
    named = {each.partition(";")[0].strip() for each in ranges}
    return "text/html" in named and "text/event-stream" not in named
