"""Requests of a client that run at the endpoint: each is one POST, whose answer and stream become lines."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import anyio
import httpx2

from mcpfleet.cli.stdio.endpoint import Events, HttpFailure, RemoteEndpoint, content_type, log, read_body, refusal
from mcpfleet.cli.stdio.lines import OutputClosed
from mcpfleet.cli.stdio.messages import (
    CANCELLED,
    LISTEN,
    METHOD_NOT_FOUND,
    Id,
    IdKey,
    NotAMessage,
    RawMessage,
    error_line,
    notification_line,
    read_message,
    to_line,
)
from mcpfleet.cli.stdio.parameters import ToolHeaders, without_bad_tools
from mcpfleet.cli.stdio.session import LAST_EVENT, SESSION, VERSION, RemoteSession, Write
from mcpfleet.wire.parameter_headers import NAMED, encode

_RESUMES: Final = 5
"""Attempts to resume a stream of 2025 of which none brings an event."""
_DRAINED_WITHIN: Final = 0.2
"""Seconds after its answer in which a stream may end, so that its connection can be used again."""
_MOST_PAGES: Final = 100
"""Pages of a list of tools that are read for a call's headers."""
_HEADER_ERRORS: Final = (-32020, -31998)
"""The codes of a server that expects other headers `Mcp-Param-…`; it has not run the call."""
_VISIBLE: Final = frozenset(map(chr, range(0x20, 0x7F)))


@dataclass(eq=False)
class Running:
    """A request that runs."""

    message: RawMessage
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    sent: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server has the whole request, or never will."""
    is_cancelled: bool = False
    """Whether the client wants nothing more of it."""
    is_heard: bool = False
    """Whether the server has said something about it."""

    @property
    def is_modern(self) -> bool:
        """Whether the end of its stream cancels it."""
        return self.message.revision is not None


class Requests:
    """The requests that run, and the session that those of 2025 belong to."""

    def __init__(self, endpoint: RemoteEndpoint, write: Write) -> None:
        """Begin with no request and no session.

        Args:
            endpoint: takes the requests.
            write: writes a line to the client.
        """
        self.session: RemoteSession | None = None
        """The newest session that a client of 2025 has begun."""
        self._endpoint = endpoint
        self._write = write
        self._running: dict[IdKey, Running] = {}
        self._ended = anyio.Event()
        """Set at the next end of a request."""
        self._parameters = ToolHeaders()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def find(self, key: IdKey) -> Running | None:
        """Return the request that runs under an id."""
        return self._running.get(key)

    def begin(self, message: RawMessage) -> Running:
        """Count a request among those that run; `run` must follow."""
        running = Running(message)
        self._running[message.key] = running
        return running

    async def wait_for_end(self) -> None:
        """Wait until one of the requests that run has ended."""
        await self._ended.wait()

    async def run(self, running: Running, opened: anyio.Event) -> None:
        """Run a request to its answer, which is an error if the server gives none.

        Args:
            running: the request.
            opened: is set once the request may be sent.
        """
        message = running.message
        try:
            with running.scope:
                await opened.wait()
                await self._answer(running)
        except HttpFailure as error:
            await self._write_failure(running, error)
        except OutputClosed:
            raise
        except Exception:
            log(traceback.format_exc())
            await self._write_failure(running, HttpFailure("mcpfleet stdio failed: its standard error says how"))
        finally:
            running.sent.set()
            if self._running.get(message.key) is running:
                del self._running[message.key]
            self._ended.set()
            self._ended = anyio.Event()

    async def tell(self, message: RawMessage) -> None:
        """Post what gets no answer: a notification, or the client's answer to a question of the server."""
        what = message.method or "an answer"
        for _ in range(2):
            session = self.session if message.revision is None else None
            number = session.number if session is not None else 0
            try:
                async with self._endpoint.request("POST", self._headers(message), message.line) as response:
                    if response.status_code == 404 and session is not None and session.has_id:
                        await session.renew(number)
                        continue
                    if not response.is_success:
                        log(f"{what} was not taken: {refusal(response).message}")
            except HttpFailure as error:
                log(f"{what} was not taken: {error.message}")
            return

    async def _write_failure(self, running: Running, error: HttpFailure) -> None:
        message = running.message
        if running.is_cancelled:
            return
        if message.method == LISTEN and running.is_heard:
            # An acknowledged stream that breaks ends so on stdio (2026-07-28, Cancellation).
            await self._write(notification_line(CANCELLED, {"requestId": message.id, "reason": error.message}))
        else:
            await self._write(error_line(message.id, error.code, error.message, error.data))

    async def _answer(self, running: Running) -> None:
        """Post a request; once more if the server certainly has not run it, and says why."""
        message = running.message
        session = self.session if not running.is_modern and message.method != "initialize" else None
        if session is not None:
            session.heed(message)
        number = session.number if session is not None else 0
        try:
            await self._ask(running, session)
        except _Forgotten:
            assert session is not None
            await session.renew(number)
            await self._ask(running, None)
        except _OtherHeaders as refused:
            if not await self._learn_tools(message):
                raise refused.failure from None
            await self._ask(running, None)

    async def _ask(self, running: Running, session: RemoteSession | None) -> None:
        """Post a request once, and pass on what comes.

        Raises:
            _Forgotten: the server does not know the session.
            _OtherHeaders: the server expects other headers.
            HttpFailure: there is no answer.
        """
        message = running.message
        begun = RemoteSession(self._endpoint, self._write, message) if message.method == "initialize" else None
        headers = self._headers(message)
        async with self._endpoint.request("POST", headers, message.line, running.sent.set) as response:
            running.sent.set()
            if not response.is_success:
                await self._refuse(running, response, session)
            elif content_type(response) == "text/event-stream":
                await self._pass_stream(running, response, begun)
            else:
                try:
                    answer = read_message(await read_body(response))
                except NotAMessage:
                    raise refusal(response) from None
                await self._pass_answer(running, answer, begun, response.headers.get(SESSION))

    async def _refuse(self, running: Running, response: httpx2.Response, session: RemoteSession | None) -> None:
        """Pass on the server's error for this request; any other refusal becomes a sentence."""
        try:
            answer = read_message(await read_body(response))
        except NotAMessage:
            answer = None
        error = answer.value.get("error") if answer is not None else None
        code = error.get("code") if isinstance(error, dict) else None
        is_ours = answer is not None and answer.id is not None and answer.key == running.message.key
        status, failure = response.status_code, refusal(response)
        if status == 404 and session is not None and session.has_id and not (is_ours and code == METHOD_NOT_FOUND):
            raise _Forgotten
        if isinstance(error, dict) and isinstance(code, int) and isinstance(text := error.get("message"), str):
            if status in (401, 403):
                failure.data = {**failure.data, "error": error}
            else:
                failure = HttpFailure(text, code=code, data=error.get("data"), status=status)
        if code in _HEADER_ERRORS and running.message.method == "tools/call":
            raise _OtherHeaders(failure)
        if answer is None or not is_ours or status in (401, 403):
            raise failure
        await self._pass_answer(running, answer, None, None)

    async def _pass_stream(self, running: Running, response: httpx2.Response, begun: RemoteSession | None) -> None:
        """Pass on the messages of a request's stream, up to its answer; a stream of 2025 may be resumed."""
        events, identifier, left = Events(), response.headers.get(SESSION), _RESUMES
        failure: HttpFailure | None = None
        try:
            if await self._pass_events(running, events.messages(response), begun, identifier):
                return
        except HttpFailure as error:
            failure = error
        while not running.is_modern and not running.is_cancelled and events.last_id and left:
            await anyio.sleep(events.retry)
            left, before = left - 1, events.last_id
            try:
                async with self._endpoint.request("GET", self._session_headers() | {LAST_EVENT: before}) as resumed:
                    if resumed.is_client_error or content_type(resumed) != "text/event-stream":
                        break
                    if await self._pass_events(running, events.messages(resumed), begun, identifier):
                        return
            except HttpFailure as error:
                failure = error
            left = _RESUMES if events.last_id != before else left
        raise failure or HttpFailure(
            "the server ended the stream without an answer: the request may have run; find out before you send it again"
        )

    async def _pass_events(
        self,
        running: Running,
        messages: AsyncGenerator[RawMessage, None],
        begun: RemoteSession | None,
        identifier: str | None,
    ) -> bool:
        """Pass on messages; returns whether the answer was among them."""
        async with aclosing(messages):
            async for message in messages:
                if message.is_response:
                    await self._pass_answer(running, message, begun, identifier)
                    with anyio.move_on_after(_DRAINED_WITHIN):
                        await anext(messages, None)
                    return True
                running.is_heard = True
                if not running.is_cancelled:
                    await self._write(message.line)
        return False

    async def _pass_answer(
        self, running: Running, answer: RawMessage, begun: RemoteSession | None, identifier: str | None
    ) -> None:
        """Pass on an answer, after what it tells is known: the client's next request may need it."""
        request = running.message
        if not answer.is_response:
            raise HttpFailure("the server answered with something that is no answer")
        if begun is not None:
            begun.agree(answer, identifier)
            if begun.is_open:
                former, self.session = self.session, begun
                if former is not None:
                    await former.end()
        if running.is_cancelled:
            return
        line = answer.line
        if answer.id is None or answer.key != request.key:
            line = to_line({**answer.value, "id": request.id})
        if request.method == "tools/list" and running.is_modern and b"x-mcp-header" in line:
            line = self._learn(answer, request.id, line)
        await self._write(line)

    def _learn(self, answer: RawMessage, identifier: Id | None, line: bytes) -> bytes:
        """Remember the headers of the listed tools; a tool whose headers are against the rules is left out (M7)."""
        refused = self._parameters.learn(answer)
        for sentence in refused:
            log(sentence)
        return to_line({**without_bad_tools(answer), "id": identifier}) if refused else line

    async def _learn_tools(self, call: RawMessage) -> bool:
        """Ask for the list of tools, for their headers; returns whether the call's own are others now."""
        before, meta = self._parameters.of_call(call), call.params.get("_meta")
        cursor: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            params = {"_meta": meta, **cursor}
            page = read_message(to_line({"jsonrpc": "2.0", "id": "tools", "method": "tools/list", "params": params}))
            async with self._endpoint.request("POST", self._headers(page), page.line) as response:
                answer = await _first_answer(response)
            result = answer.value.get("result") if answer is not None else None
            if answer is None or not isinstance(result, dict):
                break
            self._parameters.learn(answer)
            if not isinstance(following := result.get("nextCursor"), str):
                break
            cursor = {"cursor": following}
        return self._parameters.of_call(call) != before

    def _headers(self, message: RawMessage) -> dict[str, str]:
        """The headers of a message: they repeat a modern one's own members, or name the session of one of 2025."""
        if message.revision is None:
            return {} if message.method == "initialize" else self._session_headers()
        headers = {VERSION: message.revision, "Mcp-Method": message.method or ""}
        # A value that no header can carry is left out: the server answers with the protocol's own error.
        headers = {name: value for name, value in headers.items() if value and _VISIBLE.issuperset(value)}
        name = message.params.get(NAMED.get(message.method or "", ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = encode(name)
        if message.method == "tools/call":
            headers |= self._parameters.of_call(message)
        return headers

    def _session_headers(self) -> dict[str, str]:
        return self.session.headers() if self.session is not None else {}


class _Forgotten(Exception):
    """Raised when the server does not know the session of a request, which has not run."""


class _OtherHeaders(Exception):
    """Raised when the server expects other headers of a call, which has not run."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


async def _first_answer(response: httpx2.Response) -> RawMessage | None:
    """Return the answer in a response; None if it has none."""
    if not response.is_success:
        return None
    if content_type(response) == "text/event-stream":
        async with aclosing(Events().messages(response)) as messages:
            async for message in messages:
                if message.is_response:
                    return message
        return None
    try:
        return read_message(await read_body(response))
    except NotAMessage:
        return None
