"""HTTP without sockets: an ASGI application that serves clients in the same event loop.

httpx2's own ASGI transport returns an answer only once it is complete, and never tells the application that its client
left. Here answers stream, and the application notices a client that closes its side.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import anyio
import httpx2
from anyio.abc import TaskGroup

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Application: TypeAlias = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_PARTS: Final = 16
"""Pieces of an answer that a slow client may leave unread before the application waits."""


class LocalServer:
    """Serves one application at a time to clients that use its transport."""

    def __init__(self) -> None:
        self._application: Application | None = None
        self._tasks: TaskGroup | None = None
        self._context = contextvars.copy_context()

    async def serve(self, application: Application, stop: anyio.Event) -> None:
        """Serve until told to stop; requests that still run then are cut off."""
        self._context = contextvars.copy_context()
        async with anyio.create_task_group() as self._tasks:
            self._application = application
            try:
                await stop.wait()
            finally:
                self._application = None
            self._tasks.cancel_scope.cancel()

    def start(self, scope: Scope, body: bytes) -> RecordedRequest:
        """Have the application answer a request.

        Raises:
            httpx2.ConnectError: no application is served now.
        """
        if self._application is None or self._tasks is None:
            raise httpx2.ConnectError("no application is served here now")
        exchange = RecordedRequest(body)
        # In the server's context, as if the request came from outside: the client's context variables stay its own.
        self._context.copy().run(self._tasks.start_soon, exchange.run, self._application, scope)
        return exchange


class LocalTransport(httpx2.AsyncBaseTransport):
    """Carries an HTTP client's requests to a server. It ignores the client's timeouts, since a test has its own."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return once the head of its answer is there; the body streams.

        Raises:
            httpx2.ConnectError: no application is served now.
            httpx2.RemoteProtocolError: the server ended before it answered.
        """
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        exchange = self._server.start(_scope(request), b"".join([part async for part in request.stream]))
        try:
            status, headers = await exchange.head()
        except BaseException:
            exchange.leave()
            raise
        return httpx2.Response(status, headers=headers, stream=_Body(exchange))


class RecordedRequest:
    """One request and its answer."""

    def __init__(self, body: bytes) -> None:
        self.is_whole = False
        """The answer is complete."""
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._answered = anyio.Event()
        self._head: Message | None = None
        self._gone = anyio.Event()
        self._sending, self.parts = anyio.create_memory_object_stream[bytes](_PARTS)

    async def run(self, application: Application, scope: Scope) -> None:
        """Have the application answer. The client notices its end, whatever it is."""
        try:
            await application(scope, self._receive, self._send)
        finally:
            self._sending.close()
            self._answered.set()

    async def head(self) -> tuple[int, Headers]:
        """Wait for the head of the answer.

        Raises:
            httpx2.RemoteProtocolError: the server ended before it answered.
        """
        await self._answered.wait()
        if self._head is None:
            raise httpx2.RemoteProtocolError("the server closed the connection without an answer")
        return self._head["status"], self._head["headers"]

    def leave(self) -> None:
        """Close the client's side."""
        self._gone.set()
        self.parts.close()

    async def _receive(self) -> Message:
        request, self._request = self._request, None
        if request is not None:
            return request
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Pass on a piece of the answer; for a client that left it is dropped, as a server would."""
        if message["type"] == "http.response.start":
            self._head = message
            self._answered.set()
            return
        try:
            if message.get("body"):
                await self._sending.send(message["body"])
        except anyio.BrokenResourceError:
            return
        if not message.get("more_body", False):
            self.is_whole = True
            self._sending.close()
            self._gone.set()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, exchange: RecordedRequest) -> None:
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._exchange.parts:
            yield part
        if not self._exchange.is_whole:
            raise httpx2.RemoteProtocolError("the server closed the connection before its answer was whole")

    async def aclose(self) -> None:
        self._exchange.leave()


def _scope(request: httpx2.Request) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 0),
    }
