"""The stream and the send buffer that an HTTP/2 connection has for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ASGISendEvent


class RequestStream(HTTPStream):
    """One request, which tells its connection when its handler has ended: Hypercorn forgets one that was reset."""

    def __init__(self, connection: H2Protocol, stream_id: int, on_end: Callable[[int], Awaitable[None]]) -> None:
        """Begin a request of a connection, which hears by `on_end` that the request's handler has ended."""
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
        """Take what the handler sends; nothing, when it has ended."""
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
    """When it began to wait, or a good part of it was sent last, by the loop's clock."""

    async def push(self, data: bytes) -> None:
        """Add something, and wait while there is much."""
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
        """Take something, and let more be added where little is left."""
        data = await super().pop(max_length)
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        return data
