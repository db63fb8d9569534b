"""The handlers of a source's declarations: each passes a call on, and its raw result back."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeGuard

import anyio
from mcp_types import INTERNAL_ERROR

from mcpfleet.app.client import Progress
from mcpfleet.app.context import Context
from mcpfleet.app.errors import InvalidArguments, NotAccepted, OutputError
from mcpfleet.app.handler import Function, Handler, HandlerRequest, Interceptor
from mcpfleet.app.validation import Validator
from mcpfleet.sources.overlay import Offer
from mcpfleet.telemetry.trace import current
from mcpfleet.wire.parameter_headers import headers_of
from mcpfleet.wire.protocol import CONNECTION_META_KEY, SERVER_INFO_META_KEY
from mcpfleet.worker.hosting.connection import SourceConnection
from mcpfleet.worker.hosting.link import Unheard
from mcpfleet.worker.upstream import NotSent, Raw, UpstreamError, UpstreamLost

_OURS: Final = ("ttlMs", "cacheScope")
"""Members of a read's result that the edge writes (B2)."""
_SENT: Final = "mcpfleet: sent"
"""The step of a task after which its source may have run its call."""
_NOT_SENT: Final = "mcpfleet: not sent"
"""The step that takes it back, since no byte was sent."""


class Connections(Protocol):
    """The connections to a source."""

    def connection(self, ctx: Context) -> AbstractAsyncContextManager[SourceConnection]:
        """Use a connection for one call; raises `NotSent` where there is none."""

    def input_schema(self, tool: str) -> Any:
        """Return the newest input schema of a tool, by the source's own name of it; None without one."""


class HostedHandler(Handler):
    """One declaration of a source."""

    def __init__(self, offer: Offer, connections: Connections, *, checks: bool = False) -> None:
        """Make a handler of what a source offers.

        Args:
            offer: the definition, and its name at the source.
            connections: the source's.
            checks: arguments are checked before the source gets them, and structured results after (B4).
        """
        super().__init__(offer.definition, Function(self._pass_on))
        self.offer = offer
        self._upstream = offer.declared
        self._connections = connections
        wire = offer.definition.wire
        self._input = Validator(wire["inputSchema"]) if checks and "inputSchema" in wire else None
        self._output = Validator(wire["outputSchema"]) if checks and wire.get("outputSchema") else None

    async def answer(
        self,
        request: HandlerRequest,
        ctx: Context,
        *,
        threads: anyio.CapacityLimiter | None = None,
        interceptors: Sequence[Interceptor] = (),
    ) -> Raw:
        """Pass a call on to the source, and return its result.

        Raises:
            InvalidArguments: they break the tool's schema, where that is checked; nothing was sent.
            OutputError: the structured result breaks the tool's schema, where that is checked.
            UpstreamError: the source's own error.
            NotSent: nothing was sent.
            UpstreamLost: the connection ended in the call.
        """
        del threads, interceptors
        try:
            if self._input is not None and not self._input.accepts(request.arguments):
                kind = NotAccepted if ctx.is_task else InvalidArguments  # a task's were checked by nobody before (K32)
                raise kind(self._input.problems(request.arguments))
            result = await self._pass_on(request, ctx)
        finally:
            ctx.end()
        if self._output is not None and result.get("isError") is not True:
            structured = result.get("structuredContent")
            if not self._output.accepts(structured):
                broken = "; ".join(map(str, self._output.problems(structured)))
                raise OutputError(f"the source returned structured content that breaks its output schema: {broken}")
        return _raw(result, is_read="contents" in result)

    async def _pass_on(self, request: HandlerRequest, ctx: Context) -> dict[str, Any]:
        try:
            return await self._send(request, ctx)
        except Unheard:  # the next connection is another one: that one takes no request any more
            return await self._send(request, ctx)

    async def _send(self, request: HandlerRequest, ctx: Context) -> dict[str, Any]:
        method, params = self._asked(request)

        def tell(told: Mapping[str, Any]) -> None:
            if (report := progress_of(told)) is not None:
                ctx.forward(report)

        async with self._connections.connection(ctx) as connection:
            # Only the worker that has the caller's connection makes a task: another one could not run it.
            if self.definition.task is not None and request.completing is None and ctx.can_defer:
                await ctx.defer()
            if ctx.is_task:
                await _mark_sent(ctx)
            ctx.begin()
            try:
                result = await connection.request(
                    method, params, meta=_traced(request.meta), headers=self._mirrored(request), on_progress=tell
                )
            except (NotSent, Unheard):
                if ctx.is_task:
                    await ctx.asker.once(_NOT_SENT, b"", _true)
                raise
            return result if connection.label is None else _labelled(result, connection.label)

    def _mirrored(self, request: HandlerRequest) -> dict[str, str]:
        """Return the headers that repeat arguments, as the source's own schema names them (M6)."""
        if self.definition.kind != "tool" or request.completing is not None:
            return {}
        try:
            return headers_of(self._connections.input_schema(self._upstream), request.arguments)
        except ValueError:  # the source's schema breaks the rules: it says so itself, if it reads them
            return {}

    def _asked(self, request: HandlerRequest) -> tuple[str, dict[str, Any]]:
        """Return the method and the parameters by which the source knows the request."""
        kind = self.definition.kind
        if (asked := request.completing) is not None:
            ref = (
                {"type": "ref/prompt", "name": self._upstream}
                if kind == "prompt"
                else {"type": "ref/resource", "uri": self._upstream}
            )
            params: dict[str, Any] = {"ref": ref, "argument": {"name": asked.argument, "value": asked.value}}
            if asked.context:
                params["context"] = {"arguments": asked.context}
            return "completion/complete", params
        if kind in ("resource", "template"):
            return "resources/read", {"uri": request.uri or self._upstream}
        method = "tools/call" if kind == "tool" else "prompts/get"
        return method, {"name": self._upstream, "arguments": request.arguments}

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        raise NotImplementedError  # `answer` needs none of the steps of an author's function

    def _finish(self, value: Any, request: HandlerRequest) -> Raw:
        raise NotImplementedError


async def _mark_sent(ctx: Context) -> None:
    """Note with the task that its call is sent now, which happens once: B8 holds over attempts and workers.

    Raises:
        UpstreamLost: an earlier attempt may have sent it.
        Suspended: another worker has the task by now.
    """
    own = secrets.token_hex(8)

    async def mark() -> str:
        return own

    while await ctx.asker.once(_SENT, b"", mark) != own:
        await ctx.asker.once(_NOT_SENT, b"", _lost)
    await ctx.asker.make_sure()


async def _true() -> bool:
    return True


async def _lost() -> bool:
    raise UpstreamLost


def progress_of(told: Mapping[str, Any]) -> Progress | None:
    """Return what a source's notification reports, without members of another kind; None where it has no progress."""
    value, total, message = told.get("progress"), told.get("total"), told.get("message")
    if not _is_number(value):
        return None
    return Progress(value, total if _is_number(total) else None, message if isinstance(message, str) else None)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _traced(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Add the trace of the call to what its client gave, so that the source's spans belong to it, too."""
    trace = current.get()
    return meta if trace is None else {**(meta or {}), "traceparent": trace.header()}


def _labelled(result: dict[str, Any], label: str) -> dict[str, Any]:
    """Name the caller's connection in a result: another name tells that the source's state is new."""
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), CONNECTION_META_KEY: label}}


def _raw(result: dict[str, Any], *, is_read: bool) -> Raw:
    """Return a result as its client gets it (B2).

    Raises:
        UpstreamError: it is no end of a call.
    """
    kind = result.get("resultType", "complete")
    if kind != "complete":
        raise UpstreamError(
            INTERNAL_ERROR, "The server behind this tool asked the user for input, which this server does not pass on."
        )
    meta = result.get("_meta")
    kept = dict(meta) if isinstance(meta, dict) else {}
    kept.pop(SERVER_INFO_META_KEY, None)
    left_out = ("_meta", *_OURS) if is_read else ("_meta",)
    return Raw({name: value for name, value in result.items() if name not in left_out}, kept)
