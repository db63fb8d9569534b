"""The pipes of a child as the two streams of the SDK's dispatcher: one JSON-RPC message a line (B20, B21).

The SDK's own transport concatenates each chunk to what it has, so that a line of some megabytes holds the loop. It
takes any line for a message, and starts its child itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from mcpfleet.worker.hosting.child import LONGEST_LINE, HostedChild


class OwnedStream:
    """The common part of both: the dispatcher enters and leaves them, and the child's pipes outlive that."""

    async def aclose(self) -> None:
        """Do nothing: the child closes its pipes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class MessagesIn(OwnedStream):
    """The messages that a child writes. Lines that are none are told, and dropped."""

    def __init__(self, stdout: asyncio.StreamReader, begun: Set[RequestId], on_noise: Callable[[str], None]) -> None:
        self._stdout = stdout
        self._begun = begun
        """The requests that wait for an answer."""
        self._on_noise = on_noise
        self.fault = ""
        """Why the child must end, where its output broke a rule."""
        self.is_over = False
        """Whether its output has ended."""
        self.refused: set[RequestId] = set()
        """The requests that the child answered with an error: an error of the SDK's own looks the same."""

    def __aiter__(self) -> Self:
        return self

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            anyio.EndOfStream: there is none any more.
        """
        while True:
            try:
                line = await self._stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:  # a half line is no message
                self.is_over = True
                raise anyio.EndOfStream from None
            except asyncio.LimitOverrunError as error:
                self.fault = f"a line of its output has over {error.consumed} bytes (message_limit)"
                self.is_over = True
                raise anyio.EndOfStream from None
            message = read_message(line)
            if message is None:
                if line.strip():
                    self._on_noise(line[:LONGEST_LINE].decode(errors="replace").strip())
                continue
            if isinstance(message, JSONRPCError) and message.id is not None:
                answered = coerce_request_id(message.id)
                if answered in self._begun:  # else nobody forgets it: its request was cancelled, or was never made
                    self.refused.add(answered)
            return SessionMessage(message)

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class MessagesOut(OwnedStream):
    """The messages that a child is sent."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self._stdin = stdin
        self.begun: set[RequestId] = set()
        """The requests of which a byte may have been written."""
        self.is_broken = False
        """Whether the child reads no more."""

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message, and wait while the child takes no more.

        Raises:
            anyio.BrokenResourceError: the child does not read any more.
        """
        message = item.message
        if self._stdin.is_closing():
            self.is_broken = True
            raise anyio.BrokenResourceError
        body = to_json(message.model_dump(by_alias=True, exclude_unset=True))
        if isinstance(message, JSONRPCRequest):
            self.begun.add(message.id)
        try:
            self._stdin.write(body + b"\n")
            await self._stdin.drain()
        except (OSError, RuntimeError) as error:
            self.is_broken = True
            raise anyio.BrokenResourceError from error


async def follow_errors(child: HostedChild, take: Callable[[str], None]) -> None:
    """Take each line of a child's errors, up to `LONGEST_LINE` bytes of it, until it writes no more (B21)."""
    while True:
        try:
            line = await child.stderr.readuntil(b"\n")
        except asyncio.LimitOverrunError:  # the rest of the line is another one
            line = await child.stderr.read(LONGEST_LINE)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                take(error.partial.decode(errors="replace").rstrip())
            return
        if text := line.decode(errors="replace").rstrip():
            take(text)


def read_message(line: bytes | str) -> JSONRPCMessage | None:
    """Read a message; None for a text that is none. Its parameters and result keep every member, and null."""
    if line.lstrip()[:1] not in (b"{", "{"):
        return None
    try:
        value = from_json(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return None
    try:
        return _kind(value).model_validate(value)
    except ValidationError:
        identifier = value.get("id")
        if "method" in value or not isinstance(identifier, str | int):
            return None
        # Nothing else would end the wait for the answer.
        broken = ErrorData(code=INTERNAL_ERROR, message="the server's answer is no JSON-RPC response")
        return JSONRPCError(jsonrpc="2.0", id=identifier, error=broken)


def _kind(
    value: dict[str, Any],
) -> type[JSONRPCRequest] | type[JSONRPCNotification] | type[JSONRPCResponse] | type[JSONRPCError]:
    if "method" in value:
        return JSONRPCRequest if "id" in value else JSONRPCNotification
    return JSONRPCResponse if "result" in value else JSONRPCError
