"""Listen streams of a test's own, over plain HTTP: every message that comes is kept in its order."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2

from tests.kit.waiting import until
from tests.unit.edge.asgi import MODERN, request

KEY = "io.modelcontextprotocol/subscriptionId"
ACK, UPDATED, END = (
    "notifications/subscriptions/acknowledged",
    "notifications/resources/updated",
    "the end",
)


def changed(kind: str) -> str:
    """The notice that a list has changed."""
    return f"notifications/{kind}/list_changed"


class Listener:
    """One stream, and what has come of it."""

    def __init__(self, identifier: Any = 1, capabilities: Mapping[str, Any] | None = None) -> None:
        self.id = identifier
        self._capabilities = capabilities
        self.messages: list[Any] = []
        self.is_over = False
        """The stream is closed."""
        self.ended = 0.0
        """When (monotonic)."""
        self.status = 0

    def kinds(self) -> list[str]:
        """The messages in order: methods, and `the end` for the result."""
        return [message.get("method", END) for message in self.messages]

    def uris(self) -> list[str]:
        """The resources that were said to have changed."""
        return [each["params"]["uri"] for each in self.messages if each.get("method") == UPDATED]

    async def told(self, count: int, *, within: float = 10.0) -> list[str]:
        """Wait for so many messages."""
        await until(lambda: len(self.messages) >= count, within=within)
        return self.kinds()

    async def over(self, *, within: float = 10.0) -> None:
        """Wait until the stream is closed."""
        await until(lambda: self.is_over, within=within)

    async def run(
        self, http: httpx2.AsyncClient, url: str, notifications: dict[str, Any], token: str | None = None
    ) -> None:
        """Read the stream to its end."""
        body = request("subscriptions/listen", {"notifications": notifications}, identifier=self.id)
        if self._capabilities is not None:
            body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = dict(self._capabilities)
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "subscriptions/listen",
        } | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            async with http.stream("POST", url, json=body, headers=headers, timeout=None) as response:
                self.status = response.status_code
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        self.messages.append(json.loads(line.removeprefix("data: ")))
        finally:
            self.is_over = True
            self.ended = time.monotonic()


@asynccontextmanager
async def listening(
    http: httpx2.AsyncClient,
    url: str,
    /,
    count: int = 1,
    *,
    token: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
    **notifications: Any,
) -> AsyncIterator[list[Listener]]:
    """So many streams that are acknowledged, for the length of a block; some ids are equal, and some are texts."""
    streams = [Listener(_identifier(number), capabilities) for number in range(count)]
    async with anyio.create_task_group() as tasks:
        for stream in streams:
            tasks.start_soon(stream.run, http, url, notifications, token)
        await until(lambda: all(stream.messages or stream.is_over for stream in streams), within=20)
        assert [stream.status for stream in streams] == [200] * count
        yield streams
        tasks.cancel_scope.cancel()


def _identifier(number: int) -> int | str:
    """1, "1", 1, then 2, "2", 2 and so on. Equal ids of two clients are two streams, and a text is no number (S9)."""
    identifier = number // 3 + 1
    return str(identifier) if number % 3 == 1 else identifier
