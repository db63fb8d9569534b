"""A link to a source over the pipes of a child."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import ErrorData, RequestId

from mcpfleet.sources.source import Command, Source
from mcpfleet.worker.hosting.child import HostedChild, Reaping, StartError, environment
from mcpfleet.worker.hosting.link import SourceFailed
from mcpfleet.worker.hosting.pipes import MessagesIn, MessagesOut, follow_errors
from mcpfleet.worker.upstream import UpstreamError

_SETTLES_WITHIN: Final = 1.0
"""Seconds in which the end and the last lines of a child are waited for."""


class StdioLink:
    """A running child, and its messages."""

    def __init__(self, child: HostedChild, on_noise: Callable[[str], None]) -> None:
        self._child = child
        self._out = MessagesOut(child.stdin)
        self._in = MessagesIn(child.stdout, self._out.begun, on_noise)
        self._last: deque[str] = deque(maxlen=1)
        self._errors_over = anyio.Event()
        self.dispatcher = JSONRPCDispatcher(self._in, self._out)

    def was_begun(self, request: RequestId) -> bool:
        """Return whether a byte of a request may have been written."""
        return request in self._out.begun

    def refusal(self, request: RequestId, error: ErrorData) -> UpstreamError | None:
        """Return the source's own error; None for one that the dispatcher made."""
        return UpstreamError(error.code, error.message, error.data) if request in self._in.refused else None

    def forget(self, request: RequestId) -> None:
        """Forget a request that has ended."""
        self._out.begun.discard(request)
        self._in.refused.discard(request)

    def note_error(self, line: str) -> None:
        """Keep a line of the child's errors: the last one may say why it has ended."""
        self._last.append(line)

    async def follow_errors(self, take: Callable[[str], None]) -> None:
        """Take the lines of the child's errors until it writes no more."""
        try:
            await follow_errors(self._child, take)
        finally:
            self._errors_over.set()

    async def settle(self) -> None:
        """Wait until the child has ended and its errors are read, but not for long."""
        with anyio.move_on_after(_SETTLES_WITHIN):
            await self._child.wait()
            await self._errors_over.wait()

    is_process = True

    @property
    def is_over(self) -> bool:
        """Whether its child reads or writes no more."""
        return self._in.is_over or self._out.is_broken

    async def ended(self) -> None:
        """Wait for ever: the dispatcher sees the end of the child's output."""
        await anyio.sleep_forever()

    async def why_over(self) -> str:
        """Say why the child has ended, with the last line that it wrote to its standard error."""
        await self.settle()
        if self._in.fault:
            return self._in.fault
        status = self._child.status
        if status is None:
            why = "closed its output"
        elif status < 0:
            why = f"was ended by {signal.Signals(-status).name}"
        else:
            why = f"ended with exit code {status}"
        return f"{why}; it last wrote: {self._last[0]}" if self._last else why


@asynccontextmanager
async def stdio_link(
    source: Source,
    command: Command,
    reaping: Reaping,
    *,
    on_noise: Callable[[str], None],
    on_error: Callable[[str], None],
) -> AsyncIterator[StdioLink]:
    """Run a command for the length of a block.

    Args:
        source: its settings.
        command: what runs.
        reaping: starts it.
        on_noise: takes lines of its output that are no messages.
        on_error: takes lines of its standard error, without its secrets (B21).

    Raises:
        SourceFailed: it cannot be started.
    """
    own = environment({name: value.text for name, value in command.env.items()})
    try:
        child = await reaping.start(command.words, own, command.cwd, limit=source.message_limit)
    except StartError as error:
        raise SourceFailed(f"cannot be started: {error}") from error
    link = StdioLink(child, on_noise)

    def take(line: str) -> None:
        line = source.masked(line)
        link.note_error(line)
        on_error(line)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.follow_errors, take)
        try:
            yield link
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()
                await link.settle()
                child.close_pipes()
            tasks.cancel_scope.cancel()
