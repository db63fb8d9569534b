"""Passes JSON-RPC between a client's two pipes and an endpoint, in both eras.

A modern client's requests stand alone. A client of 2025 has a session. A message says itself to which era it belongs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from mcpfleet.cli.stdio.endpoint import RemoteEndpoint, log
from mcpfleet.cli.stdio.lines import LONGEST, LineReader, LineWriter, OutputClosed, TooLong
from mcpfleet.cli.stdio.messages import (
    CANCELLED,
    INITIALIZED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    LISTEN,
    NotAMessage,
    RawMessage,
    error_line,
    id_key,
    notification_line,
    read_id,
    read_message,
)
from mcpfleet.cli.stdio.requests import Requests, Running
from mcpfleet.cli.stdio.session import RemoteSession

MOST_RUNNING: Final = 1_024
"""Requests that run at once."""
_MOST_POSTS: Final = 64
"""Notifications and answers of the client that are under way at once; the input waits beyond that."""
_TAKEN_WITHIN: Final = 30.0
"""Seconds for the server to take a notification or an answer."""
_HEARD_WITHIN: Final = 1.0
"""Seconds for which the first request of a session waits for the session's GET stream."""
_FORGOTTEN_AFTER: Final = 5.0
"""Seconds after which the stream of a cancelled request of 2025 is closed."""
_FINISHED_WITHIN: Final = 0.4
"""Seconds after the end of the input in which running requests may still be answered."""
_ENDED_WITHIN: Final = 0.6
"""Seconds in which the server is told to cancel what runs."""


class Pump:
    """Passes messages until the input ends, or nobody reads the output."""

    def __init__(self, reader: LineReader, writer: LineWriter, endpoint: RemoteEndpoint) -> None:
        self._reader = reader
        self._writer = writer
        self._requests = Requests(endpoint, writer.write)
        self._opened = anyio.Event()
        """Set unless the server is just being told that the session is open; requests wait for that."""
        self._opened.set()
        self._posts = anyio.Semaphore(_MOST_POSTS)
        self._input = anyio.CancelScope()
        self._why: str | None = None

    async def run(self) -> None:
        """Pass messages; returns within about a second of the end of either side."""
        try:
            async with anyio.create_task_group() as self._tasks:
                with self._input:
                    async for line in self._reader.lines():
                        await self._take(line)
                await (self._finish() if self._why is None else self._fail(self._why))
                self._tasks.cancel_scope.cancel()
        except* OutputClosed:
            log("nobody reads the output: ending")
        finally:
            self._writer.close()

    def stop(self, why: str | None = None) -> None:
        """End as at the end of the input; with a reason, all that runs is answered with it as an error."""
        self._why = why
        self._input.cancel()

    async def _finish(self) -> None:
        """Let running requests end for a moment, then cancel them at the server."""
        with anyio.move_on_after(_FINISHED_WITHIN):
            while any(running.message.method != LISTEN for running in self._requests):
                await self._requests.wait_for_end()
        with anyio.move_on_after(_ENDED_WITHIN):
            async with anyio.create_task_group() as tasks:
                for running in self._requests:
                    running.is_cancelled = True
                    if running.is_modern:
                        running.scope.cancel()
                    elif running.sent.is_set():
                        cancel = notification_line(CANCELLED, {"requestId": running.message.id})
                        tasks.start_soon(self._requests.tell, read_message(cancel))
            if self._requests.session is not None:
                await self._requests.session.end()

    async def _fail(self, why: str) -> None:
        for running in self._requests:
            if not running.is_cancelled:
                running.is_cancelled = True
                await self._writer.write(error_line(running.message.id, INTERNAL_ERROR, why))

    async def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            said = error_line(None, INVALID_REQUEST, f"the line is longer than {LONGEST} bytes: send less at once")
            await self._writer.write(said.replace(b'"id":null', b'"id":' + (line.id or b"null"), 1))
            return
        try:
            message = read_message(line)
        except NotAMessage as error:
            await self._writer.write(error_line(error.id, error.code, error.message))
            return
        session = self._requests.session
        if message.is_request:
            await self._begin(message)
        elif message.method == CANCELLED:
            await self._cancel(message)
        elif message.method == INITIALIZED and session is not None:
            self._opened = anyio.Event()
            self._tasks.start_soon(self._open, session, message, self._opened)
        elif session is not None or message.revision is not None:
            await self._post(lambda: self._requests.tell(message))
        else:
            log(f"dropped {message.method or 'an answer'}: there is no session that it belongs to")

    async def _begin(self, message: RawMessage) -> None:
        if len(self._requests) >= MOST_RUNNING:
            said = f"{MOST_RUNNING} requests run already: wait for the answer of one"
            await self._writer.write(error_line(message.id, INTERNAL_ERROR, said))
            return
        self._tasks.start_soon(self._requests.run, self._requests.begin(message), self._opened)

    async def _cancel(self, message: RawMessage) -> None:
        """Cancel a request as its era does: by the end of its stream, or by this very notification."""
        identifier = read_id(message.params.get("requestId"))
        running = self._requests.find(id_key(identifier)) if identifier is not None else None
        if running is None or running.is_cancelled:
            return
        running.is_cancelled = True
        if running.is_modern:
            running.scope.cancel()
        else:
            await self._post(lambda: self._cancel_of_2025(running, message))

    async def _cancel_of_2025(self, running: Running, message: RawMessage) -> None:
        """Tell the server once it has the request, since it would ignore a cancel of what it does not know."""
        await running.sent.wait()
        await self._requests.tell(message)
        self._tasks.start_soon(_forget, running)

    async def _open(self, session: RemoteSession, message: RawMessage, opened: anyio.Event) -> None:
        """Tell the server that the session is open, then listen to what it says beside its answers.

        The next request waits for that stream, so that no change which follows it is missed.
        """
        try:
            session.heed(message)
            with anyio.move_on_after(_TAKEN_WITHIN):
                await self._requests.tell(message)
            self._tasks.start_soon(session.hear)
            with anyio.move_on_after(_HEARD_WITHIN):
                await session.is_heard.wait()
        finally:
            opened.set()

    async def _post(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start what posts without an answer; the input waits while too much of it is under way."""
        await self._posts.acquire()
        self._tasks.start_soon(self._do, work)

    async def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            with anyio.move_on_after(_TAKEN_WITHIN):
                await work()
        finally:
            self._posts.release()


async def _forget(running: Running) -> None:
    await anyio.sleep(_FORGOTTEN_AFTER)
    running.scope.cancel()
