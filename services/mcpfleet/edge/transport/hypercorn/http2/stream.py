"""The stream and the send buffer of one request of an HTTP/2 connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ASGISendEvent


class RequestStream(HTTPStream):
    """One request. It reports the end of its handler, which Hypercorn forgets for a stream that was reset."""

    def __init__(self, connection: H2Protocol, stream_id: int, on_end: Callable[[int], Awaitable[None]]) -> None:
        """Begin a request of a connection; `on_end` is called with its id when its handler has ended."""
        super().__init__(
            connection.app,
            connection.config,
            connection.context,
            connection.task_group,
            connection.ssl,
            connection.client,
            connection.server,
            connection.stream_send,
            stream_id,
        )
        self._on_end = on_end

    async def app_send(self, message: ASGISendEvent | None) -> None:
        """Take a message of the handler; None at its end."""
        if message is not None:
            await super().app_send(message)
            return
        try:
            await super().app_send(None)
        finally:
            await self._on_end(self.stream_id)


class SendBuffer(StreamBuffer):
    """The bytes that a stream has to send, and since when they wait for the client."""

    since = 0.0
    """When the bytes began to wait, or when many of them were sent last, by the loop's clock."""

    async def push(self, data: bytes) -> None:
        """Add bytes, and wait while there are many."""
        if self._complete:
            return
        if not self.buffer:
            self.since = asyncio.get_running_loop().time()
        self.buffer.extend(data)
        await self._is_empty.clear()
        if len(self.buffer) >= BUFFER_HIGH_WATER:
            await self._paused.clear()
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        """Take bytes, and let more be added once few are left."""
        data = await super().pop(max_length)
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        return data
