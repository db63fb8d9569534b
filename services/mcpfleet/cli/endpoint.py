"""An endpoint as a person names it: its URL, a caller's token, and sentences for answers that are none of MCP."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import TOKEN_VARIABLE

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token (RFC 6750, 2.1). Any other text is refused before a library could quote it in an error."""
_SCOPES: Final = re.compile(r'insufficient_scope.*?\bscope="([^"]*)"|\bscope="([^"]*)".*insufficient_scope')
_NO_ENDPOINT: Final = (404, 405)
"""The statuses of a path that is not an endpoint."""
_USUAL_PATH: Final = "/mcp"


def checked_url(url: str) -> str:
    """Return a URL of an endpoint; raises ConfigurationError, with the right form, for one that is malformed."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"}
        if known and parts.hostname and (parts.port is None or parts.port > 0):
            return url
    except ValueError:
        known = True
    if known:
        raise ConfigurationError(f"{url!r} is not a URL such as http://127.0.0.1:8000/mcp")
    bare = url.partition("://")[2] if "://" in url else url
    raise ConfigurationError(f"{url!r} has no http:// or https:// before it; did you mean http://{bare.lstrip('/')}?")


def with_path(url: str, status: int) -> str | None:
    """Return the URL with the usual path, where one without a path is no endpoint; None for any other.

    Args:
        url: the URL that was tried.
        status: the HTTP status of its answer.
    """
    parts = urlsplit(url)
    if status not in _NO_ENDPOINT or parts.path not in {"", "/"}:
        return None
    return urlunsplit(parts._replace(path=_USUAL_PATH))


def trust(url: str) -> ssl.SSLContext | bool:
    """Return what checks certificates for an endpoint's client: nothing is trusted where no connection has any.

    The machine's certificates take a tenth of a second to read.
    """
    encrypted = [url, *getproxies().values()]
    return any(each.startswith("https:") for each in encrypted) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def authorization(token: str | None) -> dict[str, str]:
    """The headers that carry a token.

    Raises:
        ConfigurationError: it has a character that no token has; the sentence does not quote it.
    """
    if not token:
        return {}
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(f"the token (--token, {TOKEN_VARIABLE}) has a character that no bearer token has")
    return {"Authorization": f"Bearer {token}"}


def refusal(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Explain what a caller lacks; None where the answer does not refuse the caller."""
    challenge = headers.get("www-authenticate", "")
    if status == 401:
        what = "does not take this token" if "invalid_token" in challenge else "needs a token"
        return f"{url} {what} (401): see --token and {TOKEN_VARIABLE}"
    if status == 403 and "insufficient_scope" in challenge:
        found = _SCOPES.search(challenge)
        scopes = f": it needs {found[1] or found[2]}" if found else ""
        return f"the token for {url} lacks a scope (403){scopes}"
    return None


def not_a_server(url: str, error: BaseException) -> str:
    """Say that a URL does not answer as an MCP server, or not at all, and why."""
    import httpx2  # noqa: PLC0415  # only commands that connect need it, and they have imported it

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"{url} cannot be reached: {str(error) or type(error).__name__}. Is the server running?"
    return f"{url} does not answer as an MCP server: {str(error) or type(error).__name__}"
