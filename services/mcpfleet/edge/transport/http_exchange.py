"""One HTTP request and its response: reads the body, sends the answer, and notices when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, TypeVar

import anyio

from mcpfleet.edge.transport.grant import Frame
from mcpfleet.edge.transport.hypercorn.connection import CONNECTION
from mcpfleet.edge.transport.hypercorn.http2.stream import FRAME
from mcpfleet.edge.transport.request_head import Credential, read_path
from mcpfleet.wire.errors import NO_HEADERS, too_large, too_slow
from mcpfleet.wire.headers import Headers
from mcpfleet.wire.reply import event

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Value = TypeVar("Value")
Charge = Callable[[int], Awaitable[None]]
"""Takes memory for a number of bytes, and waits for it."""

_JSON: Final = (b"content-type", b"application/json")
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")  # X18: documents stand in some answers
_EVENTS: Final = (
    (b"content-type", b"text/event-stream"),
    _NOSNIFF,
    (b"x-accel-buffering", b"no"),  # M11: proxies pass events on at once
)

_NO_CONTENT: Final = 204
"""The status of an answer that must not state a length (RFC 9110, 8.6)."""
_SMALL: Final = 64 * 1024
"""Bytes that the socket takes without waiting; the kernel ends a connection whose client takes none."""
_SLICE: Final = 256 * 1024
"""Bytes of a large body that are sent at a time. A client must read as many within each write timeout."""

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _nothing() -> None:
    pass


def _refuse(_data: bytes, _frame: Frame | None = None) -> bool:
    """Write no chunk: the connection is not one of ours, or it speaks HTTP/2."""
    return False


async def _drop(_: MutableMapping[str, Any]) -> None:
    """Send nothing, since the client has left."""


class ClientGone(Exception):
    """Raised when the client has left before its answer, or must get no answer."""


class ClientStalled(Exception):
    """Raised when the client did not read in time. Its connection cannot be used any more."""


class AnswerCut(ClientStalled):
    """Raised when an answer is cut in the midst of a change, since the right to the change has ended (X54)."""


class HttpExchange:
    """One HTTP request and its response. The server drops what is sent after the client has left (M15)."""

    # Slots keep members fast: Python shares keys of 30 members at most, and a stream reads them for hours.
    __slots__ = (
        "_closing", "_connection", "_is_whole", "_receive", "_send", "_write_chunk", "_write_timeout", "address",
        "credential", "extra", "forget_body", "headers", "http_method", "http_version",
        "is_answered", "is_ending", "is_gone", "is_streaming", "is_unwanted", "of_json", "path", "query",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, closing: bool, write_timeout: float) -> None:
        """Begin an exchange from an ASGI request.

        Args:
            scope: the request's head.
            receive: ASGI's function that returns parts of the body, and the end of the connection.
            send: ASGI's function that sends parts of the response.
            closing: tell the client to make a new connection for its next request, since the edge drains.
            write_timeout: seconds that the client may take to read.
        """
        self.http_method: str = scope["method"]
        self.http_version: str = scope["http_version"]
        raw_path: bytes | None = scope.get("raw_path")
        raw = scope["path"] if raw_path is None else raw_path.decode("latin-1")
        self.path = read_path(raw, may_be_absolute=self.http_version.startswith("1"))
        self.query: bytes = scope.get("query_string", b"")
        self.headers = Headers(scope["headers"])
        self.credential: Credential | None = None
        """The bearer token; None where the endpoint needs none."""
        self.address: str | None = (scope.get("client") or (None,))[0]
        self.extra: list[tuple[bytes, bytes]] = []
        """Headers for every answer to this request."""
        self.of_json: list[tuple[bytes, bytes]] = []
        """Headers for an answer that is no stream of events."""
        self.forget_body: Callable[[], None] = _nothing
        """Gives the body's memory back, for an answer that lasts longer than it."""
        self.is_streaming = False
        self.is_answered = False
        """The answer has begun, so no other answer is possible."""
        self.is_ending = False
        """The end of the answer is being sent, which nothing can stop."""
        self.is_unwanted = False
        """The client has cancelled the request."""
        self.is_gone = False
        """The client has left, and the request goes on without it."""
        self._connection: Any = scope.get("state", _NOTHING).get(CONNECTION)
        self._write_chunk: Callable[[bytes, Frame | None], bool] = _refuse
        self._receive = receive
        self._send = send
        self._write_timeout = write_timeout
        self._is_whole = False
        self._closing = closing and not self.http_version.startswith("2")

    def stated_size(self, limit: int) -> int | None:
        """Return the body's size by Content-Length; None without that header.

        Raises:
            Rejection: 413 where it is over the limit.
        """
        stated = self.headers.all(b"content-length")
        size = int(stated[0]) if stated and stated[0].isdigit() else None
        if size is not None and size > limit:
            raise too_large(limit)
        return size

    @property
    def has_arrived(self) -> bool:
        """Whether the whole request has arrived. Over HTTP/2 that is unknown before the body is read."""
        return self._connection is not None and self._connection.has_request

    async def read_body(self, limit: int, timeout: float, charge: Charge | None = None) -> bytes:
        """Read the whole body.

        Args:
            limit: in bytes.
            timeout: seconds that it may take.
            charge: takes memory for bytes that have arrived; None where none need be taken.

        Raises:
            Rejection: 413 over the limit, 408 after the timeout.
            ClientGone: the client has left before the body was whole.
        """
        if charge is None and self.has_arrived:
            return await self._read_parts(limit)  # nothing waits here, and a timeout would cost ten microseconds
        try:
            async with asyncio.timeout(timeout):
                return await self._read_parts(limit, charge)
        except TimeoutError:
            raise too_slow() from None

    async def _read_parts(self, limit: int, charge: Charge | None = None) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_large(limit)
            if charge is not None:
                await charge(len(part))
            parts.append(part)
            if not message.get("more_body", False):
                self._is_whole = True
                return b"".join(parts)

    async def wait_gone(self) -> None:
        """Wait until the client closes its side."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def leave(self) -> None:
        """Close the connection of a client that has left, and drop what its request still sends."""
        self.is_gone = True
        if self._connection is not None and not self.http_version.startswith("2"):
            self._connection.hang_up()
        self._send, self._write_chunk, self._connection = _drop, _refuse, None

    async def answer(
        self,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
        content_type: tuple[bytes, bytes] = _JSON,
    ) -> None:
        """Send the whole answer, by default JSON, or only a status.

        Raises:
            ClientStalled: the client does not read it.
        """
        head = [content_type, _NOSNIFF] if body else []
        if status != _NO_CONTENT:
            head.append((b"content-length", b"%d" % len(body)))
        head += [*self.of_json, *((name.lower().encode(), value.encode()) for name, value in headers.items())]
        if not (self._is_whole or self._has_no_body()):
            await self._answer_early(status, head, body)
        elif len(body) <= _SMALL:
            await self._send_whole(status, head, body)
        else:
            await self._send_large(status, head, body)

    async def _send_whole(self, status: int, head: list[tuple[bytes, bytes]], body: bytes) -> None:
        head = self._begin(head)
        if self._connection is not None and not self._closing and await self._connection.answer(status, head, body):
            return
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    async def _send_large(self, status: int, head: list[tuple[bytes, bytes]], body: bytes) -> None:
        async with self._in_time():
            await self._send({"type": "http.response.start", "status": status, "headers": self._begin(head)})
        await self._send_slices(body)
        await self.close_stream()

    async def _send_slices(self, data: bytes, frame: Frame | None = None) -> None:
        """Send a part of the body in slices, each to be read in time; no more than a slice is copied at once.

        Raises:
            ClientStalled: the client does not read.
        """
        if frame is not None and not frame.is_current:
            frame.drop()
            return
        connection = self._connection if frame is not None and not self.http_version.startswith("2") else None
        for begin in range(0, len(data), _SLICE):
            if begin and frame is not None:
                await self._check_half(frame)
            part = data if len(data) <= _SLICE else data[begin : begin + _SLICE]
            try:
                # `_in_time` would double the cost, and one change is sent to thousands of streams.
                async with asyncio.timeout(self._write_timeout):
                    if connection is not None:
                        connection.frame = frame
                    await self._send({"type": "http.response.body", "body": part, "more_body": True, FRAME: frame})
            except TimeoutError:
                raise ClientStalled from None
            finally:
                if connection is not None:
                    connection.frame = None

    async def _check_half(self, frame: Frame) -> None:
        """Wait until the rest of a half-written frame may be sent; raise `AnswerCut` if its right has ended (X54)."""
        if frame.is_current:
            return
        if not await frame.goes_on():
            frame.drop()
            if self._connection is not None and not self.http_version.startswith("2"):
                self._connection.hang_up()
            raise AnswerCut

    async def _answer_early(self, status: int, head: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer a request whose body still arrives, and close its connection.

        Meanwhile parts of the body are read and dropped: Hypercorn's queue of them is bounded, and it puts the end of
        the request into the same queue.
        """
        if not self.http_version.startswith("2") and all(name != b"connection" for name, _ in head):
            head.append((b"connection", b"close"))
        async with self._in_time(), asyncio.TaskGroup() as tasks:
            discarding = tasks.create_task(self.wait_gone())
            await self._send_whole(status, head, body)
            discarding.cancel()

    def _has_no_body(self) -> bool:
        """Return whether the head says that there is no body; HTTP/2 says it in another way."""
        if self.http_version.startswith("2"):
            return False
        stated = self.headers.all(b"content-length")
        return not self.headers.all(b"transfer-encoding") and (not stated or stated[0] == b"0")

    async def open_stream(self) -> None:
        """Begin the answer as a stream of events."""
        self.is_streaming = True
        async with self._in_time():
            await self._send({"type": "http.response.start", "status": 200, "headers": self._begin(list(_EVENTS))})
        if self._connection is not None and self.http_version == "1.1":
            self._write_chunk = self._connection.write_chunk

    async def send_part(self, data: bytes, frame: Frame | None = None) -> None:
        """Send events.

        Args:
            data: the events.
            frame: the same bytes, if they may be sent only while a grant lasts (X53).

        Raises:
            ClientStalled: the client does not read them.
        """
        if len(data) > _SMALL or not self._write_chunk(data, frame):
            await self._send_slices(data, frame)

    async def send_events(self, data: bytes) -> None:
        """Send events, and make the answer a stream first where it is none yet.

        Raises:
            ClientStalled: the client does not read them.
        """
        if not self.is_streaming:
            await self.open_stream()
        if data:
            await self.send_part(data)

    async def close_stream(self) -> None:
        """End an answer that was sent in parts."""
        async with self._in_time():
            await self._send({"type": "http.response.body", "body": b""})

    async def end(self, status: int, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Send the end: the whole answer, or the last event where the answer is a stream already (D17).

        Raises:
            ClientStalled: the client does not read it.
        """
        if not self.is_streaming:
            await self.answer(status, body, headers)
            return
        self.is_ending = True
        await self.send_part(event(body))
        await self.close_stream()

    async def end_early(self) -> None:
        """End the answer as a stream without a result, perhaps without any event."""
        if self.is_answered and not self.is_streaming:
            return  # it has ended already
        if not self.is_streaming:
            await self.open_stream()
        await self.close_stream()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._write_timeout):
                yield
        except TimeoutError:
            raise ClientStalled from None

    def _begin(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the whole head of the answer, which begins now."""
        self.is_answered = True
        self.is_ending = not self.is_streaming
        headers += self.extra
        if self._closing and all(name != b"connection" for name, _ in headers):
            headers.append((b"connection", b"close"))
        return headers

    async def cut(self) -> None:
        """Close the connection without an answer. HTTP's only way is to announce a byte that never comes."""
        head = self._begin([(b"content-length", b"1"), (b"connection", b"close")])
        await self._send({"type": "http.response.start", "status": 200, "headers": head})


async def while_there(exchange: HttpExchange, work: Callable[[], Awaitable[Value]], *, goes_on: bool = False) -> Value:
    """Do work that a client waits for, until the client leaves.

    An error of the work is raised outside of the task group, which would wrap it.

    Args:
        exchange: the client's.
        work: does it.
        goes_on: continue the work when the client leaves, and set `is_gone`.

    Raises:
        ClientGone: the client has left, and the work was cancelled.
        Exception: as the work.
    """
    done: list[Value] = []
    failure: Exception | None = None

    async def watch() -> None:
        await exchange.wait_gone()
        if goes_on:
            exchange.leave()
        else:
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            done.append(await work())
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not done:
        raise ClientGone
    return done[0]
