"""Hypercorn's TCP connection, with fixes: it ends with its client, logs no traceback, and costs less.

Hypercorn writes the head, the body and an empty end of each response one by one. After each request it starts and
cancels a task that times idleness. Together that is a fifth of the cost of a small answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from h2.exceptions import ProtocolError
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.typing import LifespanState
from priority.priority import PriorityError

from mcpfleet.edge.transport.grant import Frame
from mcpfleet.edge.transport.hypercorn.http1 import Http1
from mcpfleet.edge.transport.hypercorn.http2.frames import PartialHead
from mcpfleet.edge.transport.hypercorn.http2.protocol import Http2
from mcpfleet.edge.transport.hypercorn.http2.stream import FramedData
from mcpfleet.edge.transport.hypercorn.lifetimes import Waits

CONNECTION: Final = "mcpfleet.connection"
"""The connection's key in the `state` of an ASGI scope."""
_log: Final = logging.getLogger("hypercorn.error")
_DISCARDED: Final = 16 * 1024 * 1024
"""Bytes that are read and dropped from a client that has its answer already, at most."""
_READ: Final = 16 * 1024
"""Bytes that each read counts for then, at least."""
_NOWHERE: Final = -1
"""The place of a frame whose bytes cannot be left out any more."""
_BATCH: Final = 64 * 1024
"""Bytes that may wait for the end of the event loop's turn; with more, the sender waits for the client to read."""


class _IdleTimer:
    """Replaces Hypercorn's task that times a connection's idleness."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def restart(self, _group: object, _action: object) -> None:
        self._connection.begin_wait()

    async def stop(self) -> None:
        self._connection.end_wait()


class Connection(TCPServer):
    """One client's connection."""

    def __init__(self, *arguments: Any) -> None:
        """Take the arguments of Hypercorn's connection."""
        super().__init__(*arguments)
        self._waits: Waits = self.config.waits  # type: ignore[attr-defined]  # the edge's configuration has them
        self.idle_task = _IdleTimer(self)  # type: ignore[assignment]  # Hypercorn uses only these two methods
        self._head = PartialHead()
        # The application finds this in its scope. The copy belongs to this connection.
        self.state = LifespanState({**self.state, CONNECTION: self})
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0
        self._frames: list[tuple[int, Frame]] = []
        """The chunks among the unwritten bytes that may be written only while a grant lasts, by their places."""
        self.frame: Frame | None = None
        """That of the part of an HTTP/1.1 answer that Hypercorn is sending."""
        self._given = 0
        """Bytes that the transport was given in all."""
        self._unsent: list[tuple[int, Frame]] = []
        """The frames that the socket does not have to their end, each with the end of its bytes."""
        self._is_over = False
        self._is_passing_on = False
        """Received bytes are being passed on. That waits while the client has sent more than the current request."""
        self._is_lost = False
        self._lingers = False
        """The answer has been sent to its end, and the request's body still arrives."""
        self._reading: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Serve the connection to its end. A client that breaks HTTP/2 is cut off, with one line in the log."""
        try:
            await super().run()
        except* (ProtocolError, PriorityError) as errors:
            _log.info("HTTP/2 connection closed: %s", errors.exceptions[0])

    def hang_up(self) -> None:
        """Close the connection of a client that has left, so that its descriptor is free while the request goes on."""
        self.writer.transport.abort()

    # -- without a request --------------------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether a request is being served."""
        protocol = self.protocol.protocol
        return bool(protocol.streams) if isinstance(protocol, H2Protocol) else protocol.stream is not None

    def waits_for_client(self, least: float) -> bool:
        """Return whether all requests of an HTTP/2 connection wait for their client (`Http2.waits_for_client`)."""
        protocol = self.protocol.protocol
        return isinstance(protocol, Http2) and protocol.waits_for_client(least)

    def begin_wait(self) -> None:
        """Time the client's next step, after its connection or after its last request."""
        self._waits.bodies.remove(self)
        if self._reading is None or (self._is_passing_on and not isinstance(self.protocol.protocol, Http2)):
            # The first head, or a head that was sent behind the last request and can be read only now.
            self._waits.heads.add(self)
        else:
            self._waits.idle.add(self)

    def end_wait(self) -> None:
        """Stop timing: a request has arrived, or the connection is over."""
        self._waits.idle.remove(self)
        self._waits.bodies.remove(self)
        protocol = getattr(self, "protocol", None)  # none where the client left before Hypercorn could make one
        if self._is_over or protocol is None or not isinstance(protocol.protocol, Http2):
            self._waits.heads.remove(self)

    def _time_head(self, arrived: int) -> None:
        """Time a head of which a part has arrived."""
        protocol = self.protocol.protocol
        if isinstance(protocol, H2Protocol):
            self._waits.multiplexed[self] = None
            self._head.look(protocol.connection.incoming_buffer, arrived)
            self._time_head2(protocol)
        elif isinstance(protocol, Http1):
            if protocol.stream is None:
                self._time_head1(protocol)
            elif protocol.has_request:
                self._waits.bodies.remove(self)
            elif self not in self._waits.bodies:
                self._waits.bodies.add(self)

    def _time_head1(self, protocol: Http1) -> None:
        heads, idle = self._waits.heads, self._waits.idle
        if protocol.has_partial_head:
            if self not in heads:
                idle.remove(self)
                heads.add(self)
        elif self in heads and protocol.keep_alive_requests:
            heads.remove(self)
            idle.add(self)

    def _time_head2(self, protocol: H2Protocol) -> None:
        heads, idle = self._waits.heads, self._waits.idle
        if not self._head.is_partial:
            heads.remove(self)
            if not protocol.streams and self not in idle:
                idle.add(self)
        elif self._head.is_new or self not in heads:
            heads.add(self)

    def close_soon(self) -> None:
        """Close the connection, which nobody uses."""
        self._do_soon(self._initiate_server_close)

    def refuse_head_soon(self) -> None:
        """Close the connection, whose client takes too long for a head."""
        self._do_soon(self._refuse_head)

    def _do_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        group: Any = self._task_group._task_group  # noqa: SLF001  # Hypercorn's own hides the state of asyncio's
        if not group._aborting:  # noqa: SLF001  # else the connection is being closed, and the group takes no task
            self._task_group.spawn(work)

    async def _refuse_head(self) -> None:
        protocol = self.protocol.protocol
        if isinstance(protocol, Http1):
            if protocol.stream is not None:
                return  # the head came at the last moment
            await protocol.refuse_late_head()
        elif not self._head.is_partial:
            return
        await self._initiate_server_close()

    async def _initiate_server_close(self) -> None:
        if isinstance(self.protocol.protocol, Http2):
            await self.protocol.protocol.close()
        self._write()
        await super()._initiate_server_close()

    async def _read_data(self) -> None:
        """Pass on received bytes. The timing ends when the client leaves, and its descriptor is free at once."""
        self._reading = asyncio.current_task()
        self._watch_end(self.reader)
        try:
            await self._pass_on()
            if self._lingers:
                await self._drop_rest()
            await self.protocol.handle(Closed())
        finally:
            self._is_over = True
            self._forget_unsent()
            self._waits.multiplexed.pop(self, None)
            if isinstance(self.protocol.protocol, Http2):
                self.protocol.protocol.forget()
            await self.idle_task.stop()

    async def _pass_on(self) -> None:
        """Read and pass on bytes until the client closes its side."""
        try:
            while not self._lingers and not self.reader.at_eof():
                try:
                    data = await self.reader.read(MAX_RECV)
                except OSError:
                    break
                self._is_passing_on = True
                try:
                    await self.protocol.handle(RawData(data))
                finally:  # also after a broken protocol, whose clean-up must not be cancelled
                    self._is_passing_on = False
                self._time_head(len(data))
        except asyncio.CancelledError:
            if not (self._is_lost or self._lingers) or (self._reading is not None and self._reading.uncancel() > 0):
                raise

    def _begin_to_linger(self) -> bool:
        """Close only the edge's side, where the client still sends the body after its answer (RFC 9112, 9.6).

        Closing a socket with unread bytes resets the connection, and the client could not read its answer.
        """
        protocol = self.protocol.protocol
        if self._is_over or self._is_lost or self._lingers:
            return self._lingers
        if not isinstance(protocol, Http1) or not protocol.has_partial_body:
            return False
        self._write()
        try:
            self.writer.write_eof()
        except (OSError, RuntimeError):
            return False
        self._lingers = True
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        return True

    async def _drop_rest(self) -> None:
        """Read and drop the rest of the client's bytes for a moment."""
        left = _DISCARDED
        self._waits.answered.add(self)
        try:
            while left > 0 and (data := await self.reader.read(MAX_RECV)):
                left -= max(len(data), _READ)
        except OSError:
            pass
        finally:
            self._waits.answered.remove(self)

    def _watch_end(self, reader: asyncio.StreamReader) -> None:
        """Notice at once that the client has closed its side, though bytes that it sent before wait to be read."""
        feed_eof, set_exception = reader.feed_eof, reader.set_exception

        def on_eof() -> None:
            feed_eof()
            self._stop_passing_on()

        def on_error(error: Exception) -> None:
            set_exception(error)
            self._stop_passing_on()

        reader.feed_eof, reader.set_exception = on_eof, on_error  # type: ignore[method-assign,assignment]  # asyncio has no hook for it

    def _stop_passing_on(self) -> None:
        if self._is_passing_on and not self._is_lost and not self._lingers and self._reading is not None:
            self._is_lost = True
            self._reading.cancel()

    async def protocol_send(self, event: Event) -> None:
        """Send an event to the client. A client that has left starts no idle timer."""
        if isinstance(event, RawData):
            await self._send(event.data, event.frames if isinstance(event, FramedData) else ())
        elif isinstance(event, Closed) and self._begin_to_linger():
            pass
        elif not (self._is_over and isinstance(event, Updated)):
            self._write()
            await super().protocol_send(event)

    async def _send(self, data: bytes, frames: Iterable[Frame] = ()) -> None:
        """Write small parts together at the end of the event loop's turn; wait where the client does not read."""
        if not data:
            return
        if self.frame is not None:
            self._frames.append((len(self._unwritten), self.frame))
        for frame in frames:  # their bytes stand between other frames of HTTP/2, and cannot be left out any more
            self._frames.append((_NOWHERE, frame))
        self._write_soon(data)
        if self._unwritten_size > _BATCH or self.writer.transport.get_write_buffer_size() > 0:
            self._write()
            await super().protocol_send(RawData(b""))  # which waits, and notices a lost connection

    @property
    def has_request(self) -> bool:
        """Whether the current request has arrived whole; always False for HTTP/2, where that is unknown."""
        protocol = self.protocol.protocol
        return isinstance(protocol, Http1) and protocol.has_request

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer in one piece; return False where Hypercorn must send it (`Http1.answer`)."""
        protocol = self.protocol.protocol
        return isinstance(protocol, Http1) and await protocol.answer(status, headers, body)

    def write_chunk(self, data: bytes, frame: Frame | None = None) -> bool:
        """Write a chunk of an HTTP/1.1 answer whose head was sent, without Hypercorn.

        One change goes to thousands of streams, and this halves the cost of each. A chunk of a frame is left out if the
        frame's grant ends before the socket gets it (X53).

        Returns:
            False where the client has left or does not read: then Hypercorn must send it, and waits.
        """
        transport = self.writer.transport
        if self._is_over or self._unwritten_size > _BATCH:
            return False
        if transport.is_closing() or transport.get_write_buffer_size() > 0:
            return False
        if frame is not None:
            self._frames.append((len(self._unwritten), frame))
        self._write_soon(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def _write_soon(self, data: bytes) -> None:
        if not self._unwritten:
            self.loop.call_soon(self._write)
        self._unwritten.append(data)
        self._unwritten_size += len(data)

    def _write(self) -> None:
        if self._unwritten:
            frames = self._leave_out() if self._frames else ()
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            self._unwritten_size = 0
            if not self.writer.transport.is_closing():
                self.writer.write(data)
                self._given += len(data)
                if frames or self._unsent:
                    self._note_unsent(frames)

    def _leave_out(self) -> list[Frame]:
        """Leave out the chunks whose grants have ended; return the frames of the others."""
        frames, self._frames = self._frames, []
        left: list[Frame] = []
        for place, frame in frames:
            if frame.is_current or frame.is_begun:
                frame.is_begun = True
                left.append(frame)
            else:
                self._unwritten[place] = b""
                frame.drop()
        return left

    def _note_unsent(self, frames: Iterable[Frame]) -> None:
        """Note the frames that wait in the transport for a client that does not read."""
        sent = self._given - self.writer.transport.get_write_buffer_size()
        left: list[tuple[int, Frame]] = []
        for end, frame in self._unsent:
            if end > sent:
                left.append((end, frame))
            else:
                frame.unwatch(self._on_outcome)
        for frame in frames if self._given > sent else ():
            left.append((self._given, frame))
            frame.watch(self._on_outcome)
        self._unsent = left

    def _on_outcome(self) -> None:
        """Cut the connection where a frame has bytes that no socket was given, and its right has ended (X54).

        The bytes stand before those of other requests, in HTTP/2 too, so that nothing less takes them back.
        """
        self._note_unsent(())
        if any(frame.is_cut for _, frame in self._unsent):
            self.writer.transport.abort()
            self._forget_unsent()

    def _forget_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for _, frame in unsent:
            frame.unwatch(self._on_outcome)
            frame.drop()
