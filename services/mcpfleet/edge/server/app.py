"""The edge's ASGI application: each HTTP request becomes an exchange, measured and traced, with one reply."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.server.router import RequestRouter
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import ClientGone, ClientStalled, Receive, Scope, Send
from mcpfleet.edge.transport.memory_budget import BudgetExhausted
from mcpfleet.process.events import RequestBegan, RequestEnded
from mcpfleet.process.observers import Observers
from mcpfleet.telemetry import names
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.telemetry.spans import Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext, TraceSampling
from mcpfleet.wire import reply
from mcpfleet.wire.errors import Rejection, UnknownSession, internal, no_capacity
from mcpfleet.wire.headers import VERSION, Headers
from mcpfleet.wire.protocol import PROTOCOL_VERSION_META_KEY

_UNAUTHORIZED: Final = 401
_LONGEST_ID: Final = 128
"""Characters of a caller's id that a span may have."""


class Application:
    """Serves the endpoints of one edge."""

    def __init__(
        self,
        router: RequestRouter,
        snapshots: Snapshots,
        settings: EdgeSettings,
        *,
        spans: RequestSpans,
        instruments: EdgeInstruments,
        observers: Observers,
        log: FilteringBoundLogger,
    ) -> None:
        self._router = router
        self._snapshots = snapshots
        self._settings = settings
        self._spans = spans
        self._instruments = instruments
        self._observers = observers
        self._log = log
        self._open: dict[Exchange, float] = {}
        """The requests that are served, and since when."""
        self._call_ended = -math.inf
        """Monotonic time at which a call, or another audited method, last ended."""
        self._idle = anyio.Event()
        self.is_draining = False
        """Every answer tells its client to make a new connection, which leads to another edge."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; the server's own life cycle needs nothing of us."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # before it is accepted, that is a 403
        if scope["type"] != "http":
            return
        timeout = self._settings.write_timeout
        exchange = Exchange(scope, receive, send, closing=self.is_draining, write_timeout=timeout)
        self._open[exchange] = time.monotonic()
        try:
            if await self._receive(exchange):
                await self._answer(exchange)
        except ClientStalled:
            self._log.info("client stalled", seconds=timeout)
        finally:
            exchange.forget_body()
            del self._open[exchange]
            if not self._open:
                self._idle.set()

    def open_requests(self) -> list[tuple[str, float]]:
        """Return the requests that are served, without streams: each by its method and target, and since when."""
        return [(name, began) for each, began in self._open.items() if (name := _name(each)) is not None]

    async def wait_idle(self) -> None:
        """Wait until no request is being served."""
        while self._open:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def wait_quiet(self, grace: float) -> None:
        """Wait until no request is being served, and the last call has ended `grace` seconds ago (S23)."""
        await self.wait_idle()
        while (left := self._call_ended + grace - time.monotonic()) > 0:
            await anyio.sleep(left)
            await self.wait_idle()

    async def _receive(self, exchange: Exchange) -> bool:
        """Receive a request; return whether a method has to answer it."""
        try:
            return await self._router.receive(exchange)
        except Rejection as rejection:
            await self._reject(exchange, rejection)
        except BudgetExhausted:
            await self._reject(exchange, no_capacity(1))
        except ClientGone:
            pass  # nobody is left to answer
        except ClientStalled:
            raise
        except Exception:
            self._log.exception("request failed")
            if not exchange.is_answered:
                await self._reject(exchange, internal())
        return False

    async def _answer(self, exchange: Exchange) -> None:
        started = time.monotonic()
        error_type: str | None = None
        method, endpoint, row = exchange.message.method, exchange.endpoint, exchange.method
        version = exchange.message.meta[PROTOCOL_VERSION_META_KEY]
        tool = self._tool(exchange)
        with self._spans.start(exchange, tool) as span:
            exchange.span = span
            if self._observers.is_on:
                self._observers.tell(RequestBegan, row.name if row is not None else "", tool, span.context.trace_id)
            try:
                error_type = await self._router.answer(exchange)
            except Rejection as rejection:
                rejection = exchange.revision.rejection(rejection)
                error_type = str(rejection.code or rejection.status)
                await self._reject(exchange, rejection)
            except ClientGone:
                error_type = "unanswerable"
                await exchange.cut()
            except ClientStalled:
                span.fail("client_stalled")
                raise
            except Exception:
                error_type = "internal"
                self._log.exception("request failed", method=method)
                await self._reject(exchange, internal(span.context.trace_id))
            if error_type is not None:
                span.fail(error_type)
        if self._settings.endpoints[endpoint].body_version_wins and exchange.headers.all(VERSION) != (
            version.encode(),
        ):
            self._instruments.lenient.add(1, endpoint)
        ended = time.monotonic()
        if self._observers.is_on:
            name, trace = row.name if row is not None else "", span.context.trace_id
            self._observers.tell(RequestEnded, name, tool, trace, error_type, ended - started)
        if row is not None and row.audit is not None:
            self._call_ended = ended
        self._instruments.operation_duration.record(ended - started, method, tool or "", version, error_type or "")

    async def _reject(self, exchange: Exchange, rejection: Rejection) -> None:
        """Send a protocol error: as an event where the answer is a stream already (D17).

        A notification never gets a JSON-RPC body (T4).
        """
        identifier = None if isinstance(rejection, UnknownSession) else exchange.error_id
        self._instruments.rejections.add(1, str(rejection.status), str(rejection.code or ""))
        if rejection.status == _UNAUTHORIZED:
            self._router.audit.note_stranger(rejection.reason)
        is_bare = exchange.is_notification or rejection.code is None
        body = b"" if is_bare else reply.error(identifier, rejection)
        if exchange.is_streaming:
            await exchange.send_part(reply.event(body))
            await exchange.close_stream()
        elif not exchange.is_answered:
            await exchange.answer(rejection.status, body, rejection.headers)

    def _tool(self, exchange: Exchange) -> str | None:
        """Return the called tool where it exists: names of a caller's own making would be labels without end."""
        name = exchange.params.get("name") if exchange.message.method == "tools/call" else None
        return name if isinstance(name, str) and self._snapshots.has_tool(exchange.endpoint, name) else None


def _name(exchange: Exchange) -> str | None:
    """Return what a request is, for an operator; None for a stream, which has forgotten its message."""
    if not hasattr(exchange, "message"):
        return None if exchange.is_streaming else f"an unread {exchange.http_method}"
    target = exchange.params.get("name", exchange.params.get("uri"))
    return f"{exchange.message.method} {target[:_LONGEST_ID]}" if isinstance(target, str) else exchange.message.method


class RequestSpans:
    """Starts the span of each request."""

    def __init__(self, tracer: Tracer, sampling: TraceSampling) -> None:
        self._tracer = tracer
        self._sampling = sampling

    def start(self, exchange: Exchange, tool: str | None) -> Span:
        """Start a child of the span that `_meta` names, else of the one that the HTTP headers name (M23)."""
        message = exchange.message
        claimed = _claimed_by_meta(message.meta) or _claimed_by_headers(exchange.headers)
        trusted = exchange.address is not None and self._sampling.trusts(exchange.address)
        parent = self._sampling.parent(claimed, trusted=trusted)
        if parent is not None and not parent.sampled:
            return self._tracer.start(message.method, SpanKind.SERVER, parent)
        attributes: dict[str, str] = {
            names.MCP_METHOD_NAME: message.method,
            names.MCP_PROTOCOL_VERSION: message.meta[PROTOCOL_VERSION_META_KEY],
            names.JSONRPC_REQUEST_ID: str(exchange.id)[:_LONGEST_ID],
            names.NETWORK_PROTOCOL_NAME: "http",
            names.NETWORK_PROTOCOL_VERSION: exchange.http_version,
            names.NETWORK_TRANSPORT: "tcp",
        }
        if tool is not None:
            attributes |= {names.GEN_AI_TOOL_NAME: tool, names.GEN_AI_OPERATION_NAME: names.EXECUTE_TOOL}
        if exchange.address is not None:
            attributes[names.CLIENT_ADDRESS] = exchange.address
        return self._tracer.start(names.span_name(message.method, tool), SpanKind.SERVER, parent, attributes)


def _claimed_by_meta(meta: Mapping[str, Any]) -> TraceContext | None:
    parent, state = meta.get("traceparent"), meta.get("tracestate")
    if not isinstance(parent, str):
        return None
    return TraceContext.parse(parent, state if isinstance(state, str) else None)


def _claimed_by_headers(headers: Headers) -> TraceContext | None:
    parents = headers.all(b"traceparent")
    if len(parents) != 1:
        return None
    state = b",".join(headers.all(b"tracestate")).decode("latin-1")
    return TraceContext.parse(parents[0].decode("latin-1"), state or None)
