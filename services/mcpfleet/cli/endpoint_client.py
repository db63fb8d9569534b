"""A client of an endpoint, for the commands of people: it sends their token, and explains refusals."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation

from mcpfleet.cli.options import authorization
from mcpfleet.process.errors import leaves
from mcpfleet.process.names import TOKEN_VARIABLE

_SCOPES: Final = re.compile(r'insufficient_scope.*?\bscope="([^"]*)"|\bscope="([^"]*)".*insufficient_scope')
_CONNECTED_WITHIN: Final = 30.0
"""Seconds for connecting."""
_SILENT_FOR: Final = 300.0
"""Seconds for which a stream may be silent."""
_PASSING: Final = (408, 425, 429)
"""The 4xx statuses that may pass: another attempt may succeed."""
_OF_THE_CLIENT: Final = frozenset({"Not Found", "Session terminated", "Server returned an error response"})
"""The client library's own sentences for an answer without an MCP error."""


def refusal(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Explain what a caller lacks; None where the answer does not refuse the caller."""
    challenge = headers.get("www-authenticate", "")
    if status == httpx2.codes.UNAUTHORIZED:
        what = "does not take this token" if "invalid_token" in challenge else "needs a token"
        return f"{url} {what} (401): see --token and {TOKEN_VARIABLE}"
    if status == httpx2.codes.FORBIDDEN and "insufficient_scope" in challenge:
        found = _SCOPES.search(challenge)
        scopes = f": it needs {found[1] or found[2]}" if found else ""
        return f"the token for {url} lacks a scope (403){scopes}"
    return None


class EndpointClient:
    """An endpoint and a caller's token. Remembers the last answer's status, which the client library does not tell."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Describe the endpoint.

        Raises:
            ConfigurationError: the token is malformed.
        """
        self.url = url
        self._headers = authorization(token)
        self._status = 0
        self._refusal: str | None = None

    @asynccontextmanager
    async def open(self, read_within: float) -> AsyncIterator[Client]:
        """Open a client for the length of a block; each answer may take `read_within` seconds."""
        self._status, self._refusal = 0, None
        silence = httpx2.Timeout(_CONNECTED_WITHIN, read=max(read_within, _SILENT_FOR))
        info = Implementation(name="mcpfleet", version=version("mcpfleet"))
        hooks = {"response": [self._hear]}
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=silence, event_hooks=hooks) as http,
            Client(
                streamable_http_client(self.url, http_client=http), client_info=info, read_timeout_seconds=read_within
            ) as client,
        ):
            yield client

    async def _hear(self, response: httpx2.Response) -> None:
        self._status = response.status_code
        self._refusal = refusal(self.url, response.status_code, response.headers)

    @property
    def is_shut(self) -> bool:
        """Whether the last answer was a refusal that another attempt would meet again."""
        return httpx2.codes.is_client_error(self._status) and self._status not in _PASSING

    def reason(self, error: BaseException) -> str:
        """Explain in one line why there is no result."""
        cause = leaves(error)[0]
        if self._refusal is not None:
            return self._refusal
        if isinstance(cause, MCPError):
            if str(cause) not in _OF_THE_CLIENT:
                return f"{cause} ({cause.error.code})"
            if self._status == httpx2.codes.NOT_FOUND:
                return f"{self.url} is not an endpoint (404)"
            if httpx2.codes.is_error(self._status):
                return f"{self.url} answers with HTTP {self._status}"
        return not_a_server(self.url, cause)


def not_a_server(url: str, error: BaseException) -> str:
    """Say that a URL does not answer as an MCP server, and why."""
    return f"{url} does not answer as an MCP server: {str(error) or type(error).__name__}"
