"""The stream and the send buffer of one request of an HTTP/2 connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from hypercorn.events import RawData
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ASGISendEvent

from mcpfleet.edge.transport.grant import Frame

FRAME: Final = "mcpfleet.frame"
"""The key of a part's frame in ASGI's message."""


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
        self.frame: Frame | None = None
        """That of the part that is being sent, if it may be sent only while a grant lasts (X53)."""

    async def app_send(self, message: ASGISendEvent | None) -> None:
        """Take a message of the handler; None at its end."""
        if message is not None:
            self.frame = message.get(FRAME)  # type: ignore[assignment]  # ASGI allows further keys
            await super().app_send(message)
            return
        try:
            await super().app_send(None)
        finally:
            await self._on_end(self.stream_id)


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class FramedData(RawData):
    """Bytes of HTTP/2, with the frames of which they have a part."""

    frames: tuple[Frame, ...] = ()


@dataclass(slots=True, eq=False)
class _Part:
    """A part of the bytes that wait."""

    left: int
    """Bytes that have not been sent."""
    frame: Frame | None


class SendBuffer(StreamBuffer):
    """The bytes that a stream has to send, and since when they wait for the client."""

    since = 0.0
    """When the bytes began to wait, or when many of them were sent last, by the loop's clock."""

    def __init__(self, *arguments: Any, on_outcome: Callable[[], None] = _nothing) -> None:
        """Take the arguments of Hypercorn's buffer, and what is called where a half-written frame has an outcome."""
        super().__init__(*arguments)
        self._on_outcome = on_outcome
        self._watched: Frame | None = None
        """The frame that is half written."""
        self._sent: list[Frame] = []
        """The frames of which bytes were taken, and were not given to the socket yet."""
        self._parts: deque[_Part] = deque()
        """The parts of the buffer, as long as a frame is among them."""

    async def push(self, data: bytes, frame: Frame | None = None) -> None:
        """Add bytes, and wait while there are many. Those of a frame are left out if its grant ends before they go."""
        if self._complete:
            return
        if not self.buffer:
            self.since = asyncio.get_running_loop().time()
        if frame is not None or self._parts:
            self._add_part(len(data), frame)
        self.buffer.extend(data)
        await self._is_empty.clear()
        if len(self.buffer) >= BUFFER_HIGH_WATER:
            await self._paused.clear()
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        """Take bytes, and let more be added once few are left."""
        if self._parts:
            self._leave_out()
            if self.waits_for_outcome or self.is_cut:
                return b""
        data = await super().pop(max_length)
        if self._parts:
            self._note_sent(len(data))
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        return data

    def _leave_out(self) -> None:
        """Leave out the frames whose grants have ended, and of which nothing has been sent."""
        begin = 0
        for part in list(self._parts):
            if part.frame is None or part.frame.is_current or part.frame.is_begun:
                begin += part.left
                continue
            del self.buffer[begin : begin + part.left]
            self._parts.remove(part)
            part.frame.drop()

    def _note_sent(self, sent: int) -> None:
        while sent and self._parts:
            part = self._parts[0]
            taken = min(sent, part.left)
            part.left -= taken
            if part.frame is not None and taken:
                part.frame.is_begun = True
                self._sent.append(part.frame)
            sent -= taken
            if not part.left:
                self._parts.popleft()
        half = self._parts[0].frame if self._parts else None
        self._watch(half if half is not None and half.is_begun else None)

    def take_sent(self) -> tuple[Frame, ...]:
        """Return the frames of which bytes were taken since the last call."""
        if not self._sent:
            return ()
        sent, self._sent = tuple(self._sent), []
        return sent

    def _watch(self, half: Frame | None) -> None:
        """Hear the outcome for the frame that is half written now, and for no other."""
        if half is self._watched:
            return
        if self._watched is not None:
            self._watched.unwatch(self._on_outcome)
        self._watched = half
        if half is not None:
            half.watch(self._on_outcome)

    @property
    def waits_for_outcome(self) -> bool:
        """Whether its first bytes belong to a half-written frame whose right is uncertain."""
        return self._watched is not None and not (self._watched.may_go_on or self._watched.is_cut)

    @property
    def is_cut(self) -> bool:
        """Whether its first bytes belong to a half-written frame whose right has ended (X54)."""
        return self._watched is not None and self._watched.is_cut

    async def close(self) -> None:
        """Drop all bytes, and end the waits for them."""
        self._watch(None)
        while self._parts:
            if (frame := self._parts.popleft().frame) is not None:
                frame.drop()
        await super().close()

    def _add_part(self, size: int, frame: Frame | None) -> None:
        if not self._parts and self.buffer:
            self._parts.append(_Part(len(self.buffer), None))
        if self._parts and self._parts[-1].frame is frame:  # a large frame comes in slices
            self._parts[-1].left += size
        else:
            self._parts.append(_Part(size, frame))
