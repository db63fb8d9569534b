"""Hypercorn's HTTP/2 with three changes.

- A fault of one stream ends that stream, and not its connection with all other requests.
- A client cannot cause more work than its requests need (T26). The connection's budget is charged for each frame
  first, other tasks run between frames, and an empty budget ends the connection.
- A draining edge leads its clients away by GOAWAY (RFC 9113, 6.8), as HTTP/2 has no `Connection: close`.
"""

# Longer than 400 lines: one class of Hypercorn's, whose methods share its state.

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    PingAckReceived,
    PingReceived,
    RequestReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import DenialOfServiceError, ProtocolError
from hypercorn.events import Closed, RawData
from hypercorn.events import Event as HypercornEvent
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.utils import filter_pseudo_headers
from hyperframe.frame import GoAwayFrame

from mcpfleet.edge.transport.hypercorn.http2.budget import DRIBBLED, SENT, SMALL, SMALL_READ, Budget
from mcpfleet.edge.transport.hypercorn.http2.frames import FrameReader
from mcpfleet.edge.transport.hypercorn.http2.state import ServerState
from mcpfleet.edge.transport.hypercorn.http2.stream import FramedData, RequestStream, SendBuffer
from mcpfleet.edge.transport.hypercorn.lifetimes import GoAways, MultiplexedRequests

_log: Final = logging.getLogger("hypercorn.error")
_GO_AWAY: Final = GoAwayFrame(0, last_stream_id=2**31 - 1).serialize()
"""Asks for no new requests on this connection. Requests that arrive are still answered."""
_NEEDED: Final = frozenset((b":method", b":path"))
"""The pseudo headers of a request's line."""
_WITHOUT_EFFECT: Final = (PingReceived, PingAckReceived, SettingsAcknowledged)
"""Events that h2 has answered, or that need no answer."""
_WRITE_TIMEOUT: Final = 30.0
"""Seconds that a client may read nothing, without a setting."""
_LINGER: Final = 2.0
"""Seconds for a client to read why its connection ends."""
_DISCARDED: Final = 16 * 1024 * 1024
"""Bytes that are read and dropped meanwhile, at most."""
_READ: Final = 16 * 1024
"""Bytes that each read counts for then, at least."""


class Http2(H2Protocol):
    """One client's connection."""

    def __init__(self, *arguments: Any) -> None:
        """Take the arguments of Hypercorn's protocol."""
        super().__init__(*arguments)
        self._budget = Budget()
        self._requests: MultiplexedRequests = self.config.multiplexed_requests  # type: ignore[attr-defined]  # the edge's
        self._state = self.connection = ServerState(
            self._budget,
            requests=self._requests,
            max_frame_size=self.config.h2_max_inbound_frame_size,
            max_streams=self.config.h2_max_concurrent_streams,
            max_headers=self.config.h2_max_header_list_size,
        )
        self.stream_buffers: dict[int, SendBuffer] = {}  # type: ignore[assignment]  # a subclass
        self._handlers: set[int] = set()
        """The streams whose handlers run, including streams that were reset meanwhile."""
        self._arriving: dict[int, float] = {}
        """When the bodies that still arrive began, by the loop's clock."""
        self._ready: OrderedDict[int, None] = OrderedDict()
        """The streams that have bytes to send, in the order of their turns.

        Hypercorn has a tree of priorities, which costs each answer a walk over all streams. Clients no longer set
        priorities (RFC 9113, 5.3).
        """
        self._stalled: set[int] = set()
        """The streams that have bytes to send, and no window."""
        self._timer: asyncio.TimerHandle | None = None
        """Finds the streams that have waited too long for their client."""
        self._discarded = 0
        self._ended: asyncio.Event | None = None
        """Set when the client has left after the end of its connection."""
        self._write_timeout: float = getattr(self.config, "write_timeout", _WRITE_TIMEOUT)
        self._go_aways: GoAways | None = getattr(self.config, "go_aways", None)  # the admin port has none
        if self._go_aways is not None:
            self._go_aways.join(self)

    async def handle(self, event: HypercornEvent) -> None:
        """Take received bytes, or the news that the client has left."""
        if not isinstance(event, RawData):
            if self._ended is not None:
                self._ended.set()
            await self._close_streams()
        elif self._ended is not None:
            self._discarded += max(len(event.data), _READ)
            if self._discarded > _DISCARDED:
                self._ended.set()
        elif not self.closed:
            await self._receive(event.data)

    async def _close_streams(self) -> None:
        """Tell all handlers that their client has left, and end their waits for it."""
        self.closed = True
        for stream_id in list(self.stream_buffers):
            await self._drop(stream_id)
        await super().handle(Closed())

    async def _receive(self, data: bytes) -> None:
        """Take received bytes in turns, between which other tasks run."""
        self._budget.refill()
        frames = self._state.frames
        try:
            if len(data) < SMALL:
                self._budget.spend(SMALL_READ)
            frames.begin_turn(self._requests.reading)
            await self._handle_events(self.connection.receive_data(data))
            if frames.is_cut and not self.closed:
                await self._read_on(frames)
        except ProtocolError as error:
            await self._end(error)

    async def _read_on(self, frames: FrameReader) -> None:
        """Read what one turn was too short for. The more connections do so, the shorter each turn is."""
        self._requests.reading += 1
        try:
            while frames.is_cut and not self.closed:
                await asyncio.sleep(0)
                frames.begin_turn(self._requests.reading)
                await self._handle_events(self.connection.receive_data(b""))
        finally:
            self._requests.reading -= 1

    async def _end(self, error: ProtocolError) -> None:
        """Tell the client why its connection ends, end all its requests, and give it a moment to read that.

        Its bytes are read and dropped meanwhile: closing a socket with unread bytes would discard what was sent.
        """
        if self._ended is not None:
            return
        self._ended = asyncio.Event()
        _log.info("HTTP/2 connection closed: %s", error)
        with suppress(ProtocolError):
            if self.connection.state_machine.state is not ConnectionState.CLOSED:
                self.connection.close_connection(error.error_code)
        await self._flush()
        await self._close_streams()
        self.task_group.spawn(self._close_soon, self._ended)

    async def _close_soon(self, ended: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await ended.wait()
        await self.send(Closed())

    def waits_for_client(self, least: float) -> bool:
        """Return whether all requests wait for their client, to send or to read, and one has for `least` seconds."""
        waiting = [self._arriving.get(each) or self._unread_since(each) for each in self._handlers]
        return bool(waiting) and all(waiting) and min(waiting) <= asyncio.get_running_loop().time() - least

    def _unread_since(self, stream_id: int) -> float:
        """Return since when an answer waits for the client's window; 0 where it does not."""
        buffer = self.stream_buffers.get(stream_id)
        if buffer is None or not buffer.buffer:
            return 0.0
        is_held = stream_id in self._stalled or self.connection.outbound_flow_control_window <= 0
        return buffer.since if is_held else 0.0

    async def go_away(self) -> None:
        """Send GOAWAY without h2, which would send no answer after it."""
        if not self.closed:
            await self.send(RawData(_GO_AWAY))

    async def close(self) -> None:
        """Close the connection with the last request's id, so that a client knows that later ones did not run."""
        try:
            self.connection.close_connection()
        except ProtocolError:
            return  # the connection is closed already
        await self._flush()

    def forget(self) -> None:
        """Stop the timer, count its requests no more, and leave those that get GOAWAY, at the connection's end."""
        self._requests.count -= len(self._handlers)
        self._handlers.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._go_aways is not None:
            self._go_aways.leave(self)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send an event of a request to the client."""
        if isinstance(event, Body):
            await self._send_body(event.stream_id, event.data)
        elif isinstance(event, EndBody):
            await self._send_end(event.stream_id)
        else:
            if isinstance(event, Response):
                self._state.note_answer(event.stream_id)
            await super().stream_send(event)
            if isinstance(event, StreamClosed) and self._go_aways is not None:
                self._go_aways.note_idle(self)

    async def _send_body(self, stream_id: int, data: bytes) -> None:
        """Send a part of an answer in the next turn of the event loop, perhaps together with its end."""
        buffer = self.stream_buffers.get(stream_id)
        if buffer is not None:
            if stream_id not in self._stalled:
                self._ready[stream_id] = None
                await self.has_data.set()
            await buffer.push(data, getattr(self.streams.get(stream_id), "frame", None))

    async def _send_end(self, stream_id: int) -> None:
        """Send the rest of an answer."""
        buffer = self.stream_buffers.get(stream_id)
        if buffer is not None:
            buffer.set_complete()
            await self._send_data(stream_id)
            await buffer.drain()

    async def end_handler(self, stream_id: int) -> None:
        """Release the stream of a handler that has ended; reset the stream where its answer has no end."""
        self._requests.count -= stream_id in self._handlers
        self._handlers.discard(stream_id)
        self._arriving.pop(stream_id, None)
        if self._state.is_sending(stream_id):
            self._reset(stream_id, ErrorCodes.INTERNAL_ERROR)
            await self._flush()
        await self._release(stream_id)

    async def _release(self, stream_id: int) -> None:
        """Release a closed stream whose handler has ended, so that it counts no more."""
        if stream_id in self._handlers:
            return
        self._state.forget(stream_id)
        if stream_id not in self.connection.streams:
            await self._drop(stream_id)

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        with suppress(ProtocolError):  # the stream is closed already
            self.connection.reset_stream(stream_id, code)

    async def _handle_events(self, events: list[Event]) -> None:
        ended = [event.stream_id for event in events if isinstance(event, StreamEnded | StreamReset)]
        await super()._handle_events(self._wanted(events))  # type: ignore[arg-type]  # Hypercorn only iterates over them
        for stream_id in ended:
            self._arriving.pop(stream_id, None)
            await self._release(stream_id)
        if self._go_aways is not None:  # a client may have reset its last request
            self._go_aways.note_idle(self)

    def _wanted(self, events: list[Event]) -> Iterator[Event]:
        """Leave out events that Hypercorn cannot take, and events without effect.

        A part of a body may come after the answer, where the head was enough to refuse the request. It is dropped with
        its window given back, so that a client which sends its whole body first can read the answer.
        """
        for event in events:
            if isinstance(event, DataReceived):
                if event.stream_id in self.streams:
                    yield event
                else:
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, RequestReceived):
                if not self._state.was_reset(event.stream_id):  # otherwise the client has cancelled it at once
                    yield event
            elif isinstance(event, StreamReset):
                if event.remote_reset:
                    self._state.note_reset(event.stream_id)
                yield event
            elif not isinstance(event, _WITHOUT_EFFECT):
                yield event

    async def _create_stream(self, request: RequestReceived) -> None:
        """Begin a request, with the method as it was sent: methods are case-sensitive (RFC 9110, 9.1)."""
        pseudo = {name: value for name, value in request.headers if name in _NEEDED}
        stream_id = request.stream_id
        self.streams[stream_id] = stream = RequestStream(self, stream_id, self.end_handler)
        on_outcome = partial(self._resume_soon, stream_id)
        self.stream_buffers[stream_id] = SendBuffer(self.context.event_class, on_outcome=on_outcome)
        self._handlers.add(stream_id)
        self._requests.count += 1
        self._arriving[stream_id] = asyncio.get_running_loop().time()
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(request.headers),
                http_version="2",
                method=pseudo[b":method"].decode("ascii"),
                raw_path=pseudo[b":path"],
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    async def _window_updated(self, stream_id: int | None) -> None:
        """Let streams send again that waited for the client's window."""
        if stream_id is None:
            self._ready.update(dict.fromkeys(self._stalled))
            self._stalled.clear()
        elif stream_id in self._stalled:
            self._stalled.discard(stream_id)
            self._ready[stream_id] = None
        if self._ready:
            await self.has_data.set()

    async def send_task(self) -> None:
        """Send the bytes of streams, one frame of each in turn."""
        while not self.closed:
            if self._ready and self.connection.outbound_flow_control_window > 0:
                await self._send_data(next(iter(self._ready)))
            else:
                await self.has_data.clear()
                await self.has_data.wait()

    async def _send_data(self, stream_id: int) -> None:
        """Send one frame of a stream, with the stream's end in the last one."""
        self._ready.pop(stream_id, None)
        buffer = self.stream_buffers.get(stream_id)
        stream = self.connection.streams.get(stream_id)
        if buffer is None or stream is None:
            await self._drop(stream_id)
            return
        window = min(self.connection.outbound_flow_control_window, stream.outbound_flow_control_window)
        data = await buffer.pop(max(0, min(window, self.connection.max_outbound_frame_size)))
        if buffer.waits_for_outcome and not data:
            return
        ends = buffer.complete
        try:
            if data or ends:
                self.connection.send_data(stream_id, data, end_stream=ends)
        except ProtocolError:  # the stream or the connection has ended meanwhile
            await self._drop(stream_id)
            return
        if buffer.buffer:
            self._wait_for_window(stream_id, stream.outbound_flow_control_window)
        try:
            self._count(buffer, len(data))
        except DenialOfServiceError as error:
            await self._end(error)
            return
        if (unsent := self.connection.data_to_send()) != b"":
            await self.send(FramedData(unsent, frames=buffer.take_sent()))
        if ends:
            await self._release(stream_id)

    def _resume_soon(self, stream_id: int) -> None:
        """Go on with a stream whose half-written frame waited for an outcome, or cut it (X54)."""
        if not self.closed:
            self.task_group.spawn(self._resume, stream_id)

    async def _resume(self, stream_id: int) -> None:
        buffer = self.stream_buffers.get(stream_id)
        if buffer is None or buffer.waits_for_outcome:
            return
        if buffer.is_cut:
            await self._give_up([stream_id])
        elif stream_id not in self._stalled:
            self._ready[stream_id] = None
            await self.has_data.set()

    def _count(self, buffer: SendBuffer, sent: int) -> None:
        """Earn budget for a sent frame, to which the client may reply; charge one that its window made small."""
        if sent >= SMALL or (sent and not buffer.buffer):
            buffer.since = asyncio.get_running_loop().time()
            self._budget.earn(SENT)
        elif sent:
            self._budget.spend(DRIBBLED)

    def _wait_for_window(self, stream_id: int, window: int) -> None:
        if window > 0:
            self._ready[stream_id] = None
        else:
            self._stalled.add(stream_id)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._write_timeout, self._sweep)

    def _sweep(self) -> None:
        """Reset the streams whose client has not read for too long, and run again when the next one is due."""
        self._timer = None
        loop = asyncio.get_running_loop()
        due = {
            stream_id: each.since + self._write_timeout
            for stream_id, each in self.stream_buffers.items()
            if each.buffer
        }
        stalled = [stream_id for stream_id, when in due.items() if when <= loop.time()]
        if self.closed or not due:
            return
        if stalled:
            self.task_group.spawn(self._give_up, stalled)
        self._timer = loop.call_at(max(min(due.values()), loop.time() + 1), self._sweep)

    async def _give_up(self, stalled: list[int]) -> None:
        for stream_id in stalled:
            self._reset(stream_id, ErrorCodes.CANCEL)
            await self._drop(stream_id)
            await self._close_stream(stream_id)
            await self._release(stream_id)
        await self._flush()

    async def _drop(self, stream_id: int) -> None:
        """Drop a stream's bytes, and end the waits for them."""
        self._ready.pop(stream_id, None)
        self._stalled.discard(stream_id)
        buffer = self.stream_buffers.pop(stream_id, None)
        if buffer is not None:
            await buffer.close()
