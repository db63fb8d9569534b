"""A client of an endpoint, for the commands of people: it sends their token, and explains refusals."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation

from mcpfleet.cli.credentials import Credentials
from mcpfleet.cli.endpoint import checked_url, not_a_server, refusal, with_path
from mcpfleet.process.errors import leaves

_CONNECTED_WITHIN: Final = 30.0
"""Seconds for connecting."""
_SILENT_FOR: Final = 300.0
"""Seconds for which a stream may be silent."""
_PASSING: Final = (408, 425, 429)
"""The 4xx statuses that may pass: another attempt may succeed."""
_OF_THE_CLIENT: Final = frozenset({"Not Found", "Session terminated", "Server returned an error response"})
"""The client library's own sentences for an answer without an MCP error."""
_MISSING_CAPABILITY: Final = -32021
_PAGES_FIRST: Final = -32042
"""A server of 2025 wants pages to be opened before the call."""


class EndpointClient:
    """An endpoint and a caller's token. Remembers the last answer's status, which the client library does not tell."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Describe the endpoint.

        Args:
            url: the endpoint's URL.
            token: the caller's token, or `@` and a file that has it; it is read again for each request.

        Raises:
            ConfigurationError: the token or the URL is malformed, or the file cannot be read.
        """
        self.url = checked_url(url)
        self._credentials = Credentials(token)
        # The client library logs what it cannot read, with a traceback; the error tells it in a sentence.
        logging.getLogger("mcp").addHandler(logging.NullHandler())
        self._status = 0
        self._refusal: str | None = None

    @asynccontextmanager
    async def open(self, read_within: float, **options: Any) -> AsyncIterator[Client]:
        """Open a client for the length of a block.

        A URL without a path that is no endpoint is tried with `/mcp`, and `url` is then that one.

        Args:
            read_within: seconds that each answer may take.
            options: further options of the client, such as its callbacks.
        """
        async with AsyncExitStack() as stack:
            try:
                client = await self._connect(stack, read_within, options)
            except Exception:
                other = with_path(self.url, self._status)
                if other is None:
                    raise
                self.url = other
                client = await self._connect(stack, read_within, options)
            yield client

    async def _connect(self, stack: AsyncExitStack, read_within: float, options: dict[str, Any]) -> Client:
        self._status, self._refusal = 0, None
        silence = httpx2.Timeout(_CONNECTED_WITHIN, read=max(read_within, _SILENT_FOR))
        info = Implementation(name="mcpfleet", version=version("mcpfleet"))
        async with AsyncExitStack() as attempt:
            http = await attempt.enter_async_context(
                httpx2.AsyncClient(timeout=silence, event_hooks={"request": [self._identify], "response": [self._hear]})
            )
            transport = streamable_http_client(self.url, http_client=http)
            client = await attempt.enter_async_context(
                Client(transport, client_info=info, read_timeout_seconds=read_within, **options)
            )
            stack.push_async_exit(attempt.pop_all())
        return client

    async def _identify(self, request: httpx2.Request) -> None:
        request.headers.update(self._credentials.headers())

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
                return f"{cause} ({cause.error.code}){_advice(cause)}"
            if self._status == httpx2.codes.NOT_FOUND:
                return f"{self.url} is not an endpoint (404)"
            if httpx2.codes.is_error(self._status):
                return f"{self.url} answers with HTTP {self._status}"
        return not_a_server(self.url, cause)


def _advice(error: MCPError) -> str:
    """Return the remedy for an error that this command causes or cannot pass on; empty for any other."""
    data = error.error.data if isinstance(error.error.data, dict) else {}
    if error.error.code == _PAGES_FIRST:
        pages = ", ".join(str(each.get("url")) for each in data.get("elicitations", ()) if isinstance(each, dict))
        return f": open {pages}, and call again"
    if error.error.code != _MISSING_CAPABILITY:
        return ""
    lacking = str(data) + str(error)
    if "sampling" in lacking:
        return ": the server asks for an answer of a model, and this command has no model"
    if "roots" in lacking:
        return ": the server asks for the client's folders, and this command has none"
    if "extensions" in lacking:
        return ": each call of this tool is a task; use `mcpfleet tasks start`"
    return ""
