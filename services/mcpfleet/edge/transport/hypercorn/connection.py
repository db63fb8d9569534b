"""Hypercorn's TCP connection, mended where it outlives its client or ends with a traceback, and where it costs most.

Hypercorn writes head, body and an empty end of a response each by itself, and starts and cancels a task after each
request to time the connection's idleness. Together that is a fifth of what a small answer costs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from h2.exceptions import ProtocolError
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.typing import LifespanState
from priority.priority import PriorityError

from mcpfleet.edge.transport.hypercorn.http1 import Http1
from mcpfleet.edge.transport.hypercorn.http2.frames import PartialHead
from mcpfleet.edge.transport.hypercorn.http2.protocol import Http2
from mcpfleet.edge.transport.hypercorn.lifetimes import Waits

CONNECTION: Final = "mcpfleet.connection"
"""Names the connection in the `state` of an ASGI scope."""
_log: Final = logging.getLogger("hypercorn.error")
_DISCARDED: Final = 16 * 1024 * 1024
"""Bytes that are taken and dropped from a client that has had its answer before."""
_READ: Final = 16 * 1024
"""Bytes for which each read counts then, were it of one."""
_BATCH: Final = 64 * 1024
"""Bytes that may wait for the end of the loop's turn; with more, the sender waits for the client to read."""


class _IdleTimer:
    """Stands in for Hypercorn's task that times a connection's idleness."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def restart(self, _group: object, _action: object) -> None:
        self._connection.begin_wait()

    async def stop(self) -> None:
        self._connection.end_wait()


class Connection(TCPServer):
    """One client's connection."""

    def __init__(self, *arguments: Any) -> None:
        """Take what Hypercorn's connection takes."""
        super().__init__(*arguments)
        self._waits: Waits = self.config.waits  # type: ignore[attr-defined]  # the edge's configuration has them
        self.idle_task = _IdleTimer(self)  # type: ignore[assignment]  # it asks for no more than this
        self._head = PartialHead()
        # What an application finds in its scope; the copy is this connection's own.
        self.state = LifespanState({**self.state, CONNECTION: self})
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0
        self._is_over = False
        self._is_passing_on = False
        """What was read is being passed on, which waits where more was sent than the one request that is served."""
        self._is_lost = False
        self._lingers = False
        """The answer has been sent to its end, and the request's body still arrives."""
        self._reading: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Serve the connection to its end; a client that breaks HTTP/2 beyond repair is cut off with one line."""
        try:
            await super().run()
        except* (ProtocolError, PriorityError) as errors:
            _log.info("HTTP/2 connection closed: %s", errors.exceptions[0])

    def hang_up(self) -> None:
        """Close the connection at once: its client has left, and its descriptor is free while the request goes on."""
        self.writer.transport.abort()

    # -- without a request --------------------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether a request is being served."""
        protocol = self.protocol.protocol
        return bool(protocol.streams) if isinstance(protocol, H2Protocol) else protocol.stream is not None

    def waits_for_client(self, least: float) -> bool:
        """Whether all requests of a connection of HTTP/2 wait for their client (`Http2.waits_for_client`)."""
        protocol = self.protocol.protocol
        return isinstance(protocol, Http2) and protocol.waits_for_client(least)

    def begin_wait(self) -> None:
        """Time what the client does next: it was let in, or its last request is over."""
        self._waits.bodies.remove(self)
        if self._reading is None or (self._is_passing_on and not isinstance(self.protocol.protocol, Http2)):
            # The first head; or what was sent behind the last request, which could not be read before.
            self._waits.heads.add(self)
        else:
            self._waits.idle.add(self)

    def end_wait(self) -> None:
        """Time nothing: a request is there, or the connection is over."""
        self._waits.idle.remove(self)
        self._waits.bodies.remove(self)
        if self._is_over or not isinstance(self.protocol.protocol, Http2):
            self._waits.heads.remove(self)

    def _time_head(self, arrived: int) -> None:
        """Bound the time of a head of which a part has arrived."""
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
                return  # it came at the last moment
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
        """Pass on what the client sends; the idle time ends with the client, and its descriptor is free at once."""
        self._reading = asyncio.current_task()
        self._hear_end(self.reader)
        try:
            await self._pass_on()
            if self._lingers:
                await self._drop_rest()
            await self.protocol.handle(Closed())
        finally:
            self._is_over = True
            self._waits.multiplexed.pop(self, None)
            if isinstance(self.protocol.protocol, Http2):
                self.protocol.protocol.forget()
            await self.idle_task.stop()

    async def _pass_on(self) -> None:
        """Read to the end of what the client sends."""
        try:
            while not self._lingers and not self.reader.at_eof():
                try:
                    data = await self.reader.read(MAX_RECV)
                except OSError:
                    break
                self._is_passing_on = True
                try:
                    await self.protocol.handle(RawData(data))
                finally:  # also where the client broke the protocol: what ends then is not to be stopped
                    self._is_passing_on = False
                self._time_head(len(data))
        except asyncio.CancelledError:
            if not (self._is_lost or self._lingers) or (self._reading is not None and self._reading.uncancel() > 0):
                raise

    def _begin_to_linger(self) -> bool:
        """Close our side alone, where the client still sends what its answer did not wait for (RFC 9112, 9.6).

        A socket that is closed with something unread resets the connection, and a client that sends finds no answer.
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
        """Take and drop what the client still sends, for a moment."""
        left = _DISCARDED
        self._waits.answered.add(self)
        try:
            while left > 0 and (data := await self.reader.read(MAX_RECV)):
                left -= max(len(data), _READ)
        except OSError:
            pass
        finally:
            self._waits.answered.remove(self)

    def _hear_end(self, reader: asyncio.StreamReader) -> None:
        """Hear at once that the client has closed its side, though something that it sent before waits to be read."""
        feed_eof, set_exception = reader.feed_eof, reader.set_exception

        def on_eof() -> None:
            feed_eof()
            self._stop_passing_on()

        def on_error(error: Exception) -> None:
            set_exception(error)
            self._stop_passing_on()

        reader.feed_eof, reader.set_exception = on_eof, on_error  # type: ignore[method-assign,assignment]  # there is no hook

    def _stop_passing_on(self) -> None:
        if self._is_passing_on and not self._is_lost and not self._lingers and self._reading is not None:
            self._is_lost = True
            self._reading.cancel()

    async def protocol_send(self, event: Event) -> None:
        """Send to the client; one that has left is not idle, and starts no timer."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed) and self._begin_to_linger():
            pass
        elif not (self._is_over and isinstance(event, Updated)):
            self._write()
            await super().protocol_send(event)

    async def _send(self, data: bytes) -> None:
        """Write small parts together at the end of the loop's turn; wait where the client does not read."""
        if not data:
            return
        self._write_soon(data)
        if self._unwritten_size > _BATCH or self.writer.transport.get_write_buffer_size() > 0:
            self._write()
            await super().protocol_send(RawData(b""))  # which waits, and hears that the connection is lost

    @property
    def has_request(self) -> bool:
        """Whether the one request that is being served is known to have arrived to its end; never of HTTP/2."""
        protocol = self.protocol.protocol
        return isinstance(protocol, Http1) and protocol.has_request

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Give a whole answer in one piece; False where only Hypercorn's way will do (`Http1.answer`)."""
        protocol = self.protocol.protocol
        return isinstance(protocol, Http1) and await protocol.answer(status, headers, body)

    def write_chunk(self, data: bytes) -> bool:
        """Write a part of an HTTP/1.1 answer of unsaid length, whose head was sent, past all that Hypercorn does.

        One change goes to thousands of streams, and this halves what each costs.

        Returns:
            False where the client does not read or has left: then Hypercorn's way is the one, which waits.
        """
        transport = self.writer.transport
        if self._is_over or self._unwritten_size > _BATCH:
            return False
        if transport.is_closing() or transport.get_write_buffer_size() > 0:
            return False
        self._write_soon(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def _write_soon(self, data: bytes) -> None:
        if not self._unwritten:
            self.loop.call_soon(self._write)
        self._unwritten.append(data)
        self._unwritten_size += len(data)

    def _write(self) -> None:
        if self._unwritten:
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            self._unwritten_size = 0
            if not self.writer.transport.is_closing():
                self.writer.write(data)
