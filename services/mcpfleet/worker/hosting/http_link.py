"""A link to a source over HTTP (Streamable HTTP, both eras): each message is a POST of its own.

The SDK's own transport tells a refused connection from a lost answer by no means, ends its other calls with the first
one that cannot connect, and turns statuses into errors that a source could have said. B7 and B8 need all three.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import httpx2
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher, cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from mcpfleet.sources.source import Source, Url
from mcpfleet.wire.protocol import PROTOCOL_VERSION_META_KEY
from mcpfleet.worker.hosting.http_credentials import NoToken, Tokens
from mcpfleet.worker.hosting.http_endpoint import HANDSHAKES, SESSION, HttpEndpoint, Post
from mcpfleet.worker.hosting.http_wire import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    AnswerTooLarge,
    Cursor,
    body_of,
    client_for,
    events_of,
    is_stream,
    kind_of,
    status_text,
    to_bytes,
    why_unreachable,
)
from mcpfleet.worker.hosting.link import Turned, Unheard
from mcpfleet.worker.hosting.pipes import OwnedStream, read_message
from mcpfleet.worker.upstream import UpstreamError

_NOTIFIES_WITHIN: Final = 5.0
"""Seconds in which a source takes a notification."""
_RESUMES: Final = 2
"""Attempts in a row to take up a stream of 2025 again."""


class HttpLink(OwnedStream):
    """The messages of one connection, and its session where the source begins one."""

    def __init__(
        self,
        source: Source,
        way: Url,
        client: httpx2.AsyncClient,
        tasks: TaskGroup,
        *,
        on_gap: Callable[[], None],
        on_noise: Callable[[str], None],
    ) -> None:
        self._source = source
        self._shown = way.without_secrets
        self._endpoint = HttpEndpoint(way, client)
        self._tasks = tasks
        self._on_gap = on_gap
        self._on_noise = on_noise
        self._incoming: MemoryObjectSendStream[SessionMessage | Exception]
        self._incoming, self._received = anyio.create_memory_object_stream[SessionMessage | Exception]()
        self._posts: dict[RequestId, Post] = {}
        self._why = ""
        self._over = anyio.Event()
        self.dispatcher = JSONRPCDispatcher(self._received, self)

    # -- what a connection asks ---------------------------------------------------------------------------------------

    def was_begun(self, request: RequestId) -> bool:
        """Return whether a byte of a request may have been written."""
        return request in self._posts and self._posts[request].is_begun

    def refusal(self, request: RequestId, error: ErrorData) -> UpstreamError | None:
        """Return the source's answer to a request that has failed; None where it gave none."""
        del error
        return self._posts[request].refusal if request in self._posts else None

    def forget(self, request: RequestId) -> None:
        """Forget a request that has ended."""
        self._posts.pop(request, None)

    is_process = False

    @property
    def is_over(self) -> bool:
        """Whether the next request needs another handshake, or the source cannot be reached."""
        return self._over.is_set()

    async def ended(self) -> None:
        """Wait until `is_over`."""
        await self._over.wait()

    async def why_over(self) -> str:
        """Say why, with the URL."""
        return self._why or f"{self._shown} was left"

    def _end(self, why: str) -> None:
        self._why = self._why or f"{self._shown} {self._source.masked(why)}"
        self._over.set()

    # -- what goes out ------------------------------------------------------------------------------------------------

    async def send(self, item: SessionMessage, /) -> None:
        """Begin to send a message; a notification has been taken when this returns."""
        message, metadata = item.message, item.metadata
        if isinstance(message, JSONRPCRequest):
            stamped = metadata.headers if isinstance(metadata, ClientMessageMetadata) else None
            meta = (message.params or {}).get("_meta") or {}
            post = Post(message, is_modern=PROTOCOL_VERSION_META_KEY in meta)
            self._posts[message.id] = post  # at once: the next message may cancel it
            self._tasks.start_soon(self._run, post, stamped or {})
        elif isinstance(message, JSONRPCNotification):
            await self._notify(message)
        else:
            self._tasks.start_soon(self._post_aside, message)

    async def _notify(self, message: JSONRPCNotification) -> None:
        post: Post | None = None
        if message.method == "notifications/cancelled":
            cancelled = cancelled_request_id_from_params(message.params)
            post = self._posts.get(cancelled) if cancelled is not None else None
            if post is None or post.is_modern:  # since 2026 the end of its stream says it
                if post is not None:
                    post.scope.cancel()
                return
        with anyio.move_on_after(_NOTIFIES_WITHIN):
            await self._post_aside(message)
        if post is not None:
            post.scope.cancel()
        if message.method == "notifications/initialized" and self._endpoint.session is not None:
            self._tasks.start_soon(self._follow_session)

    async def _post_aside(self, message: JSONRPCMessage) -> None:
        """Send a message that has no answer."""
        # Nothing waits for it, and a source that is away tells that in the next request.
        with suppress(Exception):
            async with self._endpoint.exchange("POST", self._endpoint.headers(), to_bytes(message)):
                pass

    # -- one request --------------------------------------------------------------------------------------------------

    async def _run(self, post: Post, stamped: Mapping[str, str]) -> None:
        """Make a request; whatever happens to it happens to it alone."""
        with post.scope:
            try:
                await self._request(post, stamped)
            except NoToken as error:
                self._end(f"cannot be asked: {error}")
                await self._lose(post)
            except AnswerTooLarge as error:
                self._on_noise(f"{post.request.method}: {error}")
                await self._lose(post)
            except Exception as error:  # an error of any kind here would end every other request
                if not post.is_begun:
                    self._end(why_unreachable(error))
                await self._lose(post)

    async def _request(self, post: Post, stamped: Mapping[str, str]) -> None:
        request = post.request
        if request.method == "initialize":
            self._endpoint.session = self._endpoint.revision = None
        headers = self._endpoint.headers(post, stamped)
        async with self._endpoint.exchange("POST", headers, to_bytes(request), post) as response:
            status = response.status_code
            if request.method == "initialize" and response.is_success:
                self._endpoint.session = response.headers.get(SESSION)
            if status == httpx2.codes.NOT_FOUND and SESSION in headers:
                self._end("ended the session")
                await self._refuse(post, Unheard(INTERNAL_ERROR, "The server behind this ended the session."))
            elif is_stream(response):
                await self._read_events(post, response)
            elif response.is_success and kind_of(response) == "application/json":
                message = read_message(await body_of(response, self._source.message_limit))
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    await self._take(post, message)
                else:
                    await self._lose(post)
            else:
                may_have_run = response.is_success or status >= httpx2.codes.INTERNAL_SERVER_ERROR
                await self._take_error(post, response, or_lose=may_have_run)

    async def _take_error(self, post: Post, response: httpx2.Response, *, or_lose: bool) -> None:
        """Take a status that is no answer of a call: a JSON-RPC error in its body, or the status itself."""
        request, message = post.request, None
        if kind_of(response) == "application/json" and not response.is_success:
            message = read_message(await body_of(response, self._source.message_limit))
        if isinstance(message, JSONRPCError) and (message.id == request.id or (message.id is None and not or_lose)):
            await self._take(post, message, response.status_code)
        elif or_lose:
            self._why = self._why or f"{self._shown} answered {status_text(response)}"
            await self._lose(post)
        else:
            why = f"{self._shown} answered {status_text(response)}"
            text = f"The server behind this refused the request with HTTP {response.status_code}."
            await self._refuse(post, Turned(text, self._source.masked(why)))

    async def _take(self, post: Post, message: JSONRPCResponse | JSONRPCError, status: int = 200) -> None:
        """Take the answer to a request."""
        request = post.request
        if isinstance(message, JSONRPCError):
            error = message.error
            refusal = UpstreamError(error.code, error.message, error.data)
            if status == httpx2.codes.BAD_REQUEST and error.code == HEADER_MISMATCH:
                self._end("expects other headers, so its lists must be read again")
                refusal = Unheard(error.code, error.message, error.data)
            elif error.code == UNSUPPORTED_PROTOCOL_VERSION and request.method not in HANDSHAKES:
                self._end("no longer speaks the revision that it spoke")
            await self._refuse(post, refusal)
            return
        if request.method == "initialize":
            revision = message.result.get("protocolVersion")
            self._endpoint.revision = revision if isinstance(revision, str) else None
        await self._deliver(message.model_copy(update={"id": request.id}))

    async def _refuse(self, post: Post, refusal: UpstreamError) -> None:
        post.refusal = refusal
        error = ErrorData(code=refusal.code, message=refusal.message)
        await self._deliver(JSONRPCError(jsonrpc="2.0", id=post.request.id, error=error))

    async def _lose(self, post: Post) -> None:
        """End the wait for an answer that will not come."""
        lost = ErrorData(code=CONNECTION_CLOSED, message="the answer was lost")
        await self._deliver(JSONRPCError(jsonrpc="2.0", id=post.request.id, error=lost))

    async def _deliver(self, message: JSONRPCMessage) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection has ended
            await self._incoming.send(SessionMessage(message))

    # -- streams ------------------------------------------------------------------------------------------------------

    async def _read_events(self, post: Post, response: httpx2.Response) -> None:
        """Read the stream of a request to its answer; one of 2025 that breaks off is taken up again by a GET."""
        cursor = Cursor()
        if await self._read_stream(post, response, cursor):
            return
        await response.aclose()
        failures = 0
        while cursor.last and not post.is_modern and failures < _RESUMES:
            await anyio.sleep(cursor.pause)
            failures += 1
            before = cursor.last
            with suppress(httpx2.HTTPError, NoToken):
                async with self._endpoint.exchange("GET", self._endpoint.get_headers(cursor)) as resumed:
                    if not is_stream(resumed):
                        break
                    if await self._read_stream(post, resumed, cursor):
                        return
            if cursor.last != before:
                failures = 0
        await self._lose(post)

    async def _read_stream(self, post: Post, response: httpx2.Response, cursor: Cursor) -> bool:
        """Deliver the events of a stream; return whether its request was answered."""
        with suppress(httpx2.TransportError, httpx2.StreamError):
            async for event in events_of(response, self._source.message_limit):
                cursor.note(event)
                message = self._message_of(event)
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    await self._take(post, message)
                    return True
                if message is not None:
                    await self._deliver(message)
        return False

    def _message_of(self, event: httpx2.ServerSentEvent) -> JSONRPCMessage | None:
        if event.event != "message" or not event.data:
            return None
        message = read_message(event.data)
        if message is None:
            self._on_noise(event.data)
        return message

    async def _follow_session(self) -> None:
        """Hear what a source of 2025 says outside of requests, where it offers a stream for that."""
        cursor, pause, is_first = Cursor(), FIRST_PAUSE, True
        while not self.is_over:
            began = anyio.current_time()
            try:
                async with self._endpoint.exchange("GET", self._endpoint.get_headers(cursor)) as response:
                    if response.status_code == httpx2.codes.NOT_FOUND:
                        self._end("ended the session")
                    if response.is_client_error or (response.is_success and not is_stream(response)):
                        return  # it offers none
                    if is_stream(response):
                        if not is_first:
                            self._on_gap()
                        await self._hear(response, cursor)
            except (httpx2.ConnectError, httpx2.ConnectTimeout, NoToken) as error:
                self._end(why_unreachable(error))
            except Exception as error:  # as above: calls go on without this stream
                self._on_noise(f"the stream of the session broke off: {error!r}")
            is_first = False
            if anyio.current_time() - began > LONGEST_PAUSE:  # it was well for long
                pause = FIRST_PAUSE
            await anyio.sleep(pause if cursor.given is None else cursor.given)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _hear(self, response: httpx2.Response, cursor: Cursor) -> None:
        async for event in events_of(response, self._source.message_limit):
            cursor.note(event)
            if (message := self._message_of(event)) is not None:
                await self._deliver(message)

    async def leave(self) -> None:
        """Deliver nothing more, and tell the source that its session is over."""
        self._incoming.close()
        self._received.close()
        if not self.is_over:
            await self._endpoint.leave()


@asynccontextmanager
async def http_link(
    source: Source,
    way: Url,
    tokens: Tokens | None,
    *,
    on_gap: Callable[[], None],
    on_noise: Callable[[str], None],
) -> AsyncIterator[HttpLink]:
    """Reach a source over HTTP for the length of a block; nothing is sent before the first request.

    Args:
        source: its settings.
        way: its URL and headers.
        tokens: fetches its tokens, where it needs some.
        on_gap: hears that changes may have been missed.
        on_noise: takes what the source says that is no message.
    """
    async with client_for(source, tokens) as client, anyio.create_task_group() as tasks:
        link = HttpLink(source, way, client, tasks, on_gap=on_gap, on_noise=on_noise)
        try:
            yield link
        finally:
            await link.leave()
            tasks.cancel_scope.cancel()
