"""A reverse proxy that hands each HTTP request to the next edge: no affinity, and nothing held back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self
from urllib.parse import SplitResult, urlsplit

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

PATIENCE = 120.0
"""Seconds that a side whose turn it is may be silent, or refuse to read, before both connections are closed."""

CONNECT = 5.0
"""Seconds that an edge has to accept a connection."""

LINGER = 2.0
"""Seconds that a client has to finish a request that was answered before its body had come."""

HEAD = 64 * 1024
"""Bytes that the head of a request or response may have."""


class Balancer:
    """Listens on a free loopback port, and spreads HTTP/1.1 requests over edges in turn.

    Two requests of one connection go to two edges, so that whatever an edge remembers between them is missed. The
    target, the headers in their order and letters, the Host among them, and the body pass as they come. A client that
    leaves, by half-closing as well, closes the edge's connection; an edge that dies in the middle of a response cuts
    the client's. An edge that cannot be reached, or closes before it answers, is a 502.

    Used as `async with Balancer(urls) as balancer`.
    """

    def __init__(self, edges: Sequence[str], *, patience: float = PATIENCE) -> None:
        """Take the edges' URLs, which differ in host and port only."""
        self._edges = [urlsplit(url) for url in edges]
        self._patience = patience
        self._port = 0
        self._stack = AsyncExitStack()
        self.served = [0] * len(edges)
        """How many requests each edge was handed."""

    @property
    def url(self) -> str:
        """Where clients send their requests: our address, and the edges' path."""
        return f"http://127.0.0.1:{self._port}{self._edges[0].path}"

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        await self._stack.enter_async_context(listener)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        self._port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The task group is not told of the caller's own error: it would raise it again inside a group of errors.
        await self._stack.aclose()

    async def _serve(self, stream: SocketStream) -> None:
        """Forward the requests of one connection, one after the other."""
        async with stream:
            client = Leg(stream, h11.SERVER, self._patience)
            try:
                while isinstance(request := await client.next(), h11.Request):
                    await self._forward(client, request)
                    if not await client.reusable():
                        return
            except ConnectionAbortedError:
                await client.refuse(400)

    async def _forward(self, client: Leg, request: h11.Request) -> None:
        """Hand one request to the edge whose turn it is, over a connection of its own."""
        if request.http_version != b"1.1":
            await client.refuse(505)
            return
        edge = self._next()
        with suppress(OSError):  # A time-out is one as well.
            with anyio.fail_after(CONNECT):
                stream = await anyio.connect_tcp(edge.hostname or "", edge.port or 80)
            async with stream:
                await _exchange(client, Leg(stream, h11.CLIENT, self._patience), request)
        await client.refuse(502)

    def _next(self) -> SplitResult:
        """Choose the edge whose turn it is."""
        turn = sum(self.served) % len(self._edges)
        self.served[turn] += 1
        return self._edges[turn]


class Leg:
    """One side of an exchange: a connection, and what h11 makes of its bytes."""

    def __init__(self, stream: SocketStream, role: type[h11.CLIENT | h11.SERVER], patience: float) -> None:
        """Take the connection, and the role that we play in it."""
        self._stream = stream
        self._patience = patience
        self._http = h11.Connection(role, max_incomplete_event_size=HEAD)
        self._left = False

    async def next(self) -> h11.Event | None:
        """Wait for the next part of a message, or for the connection's end between messages.

        None comes after a message whose successor is here already, and has to wait.

        Raises:
            ConnectionAbortedError: the other end broke off or broke the protocol, or was silent for too long.
        """
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._receive())
        except h11.RemoteProtocolError as error:
            raise ConnectionAbortedError from error
        return event if isinstance(event, h11.Event) else None

    async def send(self, event: h11.Event) -> None:
        """Write a part of a message at once.

        Raises:
            ConnectionAbortedError: the other end is gone, or refused to read for too long.
        """
        try:
            with anyio.fail_after(self._patience):
                await self._stream.send(self._http.send(event) or b"")
        except (anyio.BrokenResourceError, TimeoutError) as error:
            raise ConnectionAbortedError from error

    async def refuse(self, status: int) -> None:
        """Answer in an edge's place, where nothing was answered yet and somebody is there to read it."""
        if self._left or self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        headers = [("Content-Length", "0"), ("Connection", "close")]
        with suppress(ConnectionAbortedError):
            await self.send(h11.Response(status_code=status, headers=headers))
            await self.send(h11.EndOfMessage())

    async def reusable(self) -> bool:
        """Get ready for the connection's next message, where the one before ends on both sides.

        The rest of a request that was answered early is read and dropped: to close on it would take the answer along.
        """
        if self._http.our_state in {h11.DONE, h11.MUST_CLOSE}:
            with suppress(ConnectionAbortedError), anyio.move_on_after(LINGER):
                while self._http.their_state is h11.SEND_BODY:
                    await self.next()
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _receive(self) -> bytes:
        """Wait for bytes; none mean that the other end has left."""
        # A side that has sent everything may listen for as long as the other one talks.
        patience = math.inf if self._http.their_state is h11.DONE else self._patience
        try:
            with anyio.fail_after(patience):
                return await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, TimeoutError):
            self._left = True
            return b""


async def _exchange(client: Leg, edge: Leg, request: h11.Request) -> None:
    """Pass a request on and its response back, until the response or the client's stay ends."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_upload, client, edge, request, tasks.cancel_scope)
        await _download(edge, client)
        tasks.cancel_scope.cancel()


async def _upload(client: Leg, edge: Leg, request: h11.Request, exchange: anyio.CancelScope) -> None:
    """Pass the request on, then watch for the client to leave, which ends the exchange."""
    event: h11.Event | None = request
    with suppress(ConnectionAbortedError):
        while event is not None and not isinstance(event, h11.ConnectionClosed):
            with suppress(ConnectionAbortedError):  # An edge may answer and close before it has read all.
                await edge.send(event)
            event = await client.next()
    if event is not None:
        exchange.cancel()


async def _download(edge: Leg, client: Leg) -> None:
    """Pass the response back."""
    with suppress(ConnectionAbortedError):
        while (event := await edge.next()) is not None:
            await client.send(event)
            if isinstance(event, h11.EndOfMessage):
                return
