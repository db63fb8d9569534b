"""The edge's HTTP face, an ASGI application: one request in, one answer or stream out, measured and traced."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio
from mcp_types import INTERNAL_ERROR
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.calls.end import as_told
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.identity.metadata import Metadata
from mcpfleet.edge.protocol.exchange import Request
from mcpfleet.edge.protocol.validation import check_form, check_message, check_place
from mcpfleet.edge.server.audit import AUDITED
from mcpfleet.edge.server.router import Methods
from mcpfleet.edge.server.session_endpoint import SessionDoor
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.allowed_hosts import Doors
from mcpfleet.edge.transport.client import Charge, Client, ClientGone, ClientStalled, Receive, Scope, Send
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.edge.transport.memory_budget import Account, NoRoom, Room
from mcpfleet.telemetry import names
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.telemetry.spans import Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext, TraceSampling
from mcpfleet.wire import reply
from mcpfleet.wire.envelope import Envelope, RequestId, is_notification, is_response, read_id
from mcpfleet.wire.errors import Rejection, UnknownSession, internal, no_capacity
from mcpfleet.wire.headers import SESSION, VERSION, Headers
from mcpfleet.wire.protocol import PROTOCOL_VERSION_META_KEY
from mcpfleet.wire.scan import scan
from mcpfleet.wire.strict import parse, parse_scanned

_UNREAD: Final = object()
"""Stands where a body was not parsed yet."""
_LONGEST_ID: Final = 128
"""Characters of a caller's id that a span may have."""


class Application:
    """Serves the endpoints of one edge."""

    def __init__(
        self,
        *,
        endpoints: Mapping[str, Endpoint],
        doors: Doors,
        cors: Cors,
        admission: Admission,
        limits: Limits,
        metadata: Metadata | None,
        methods: Methods,
        sessions: SessionDoor,
        room: Room,
        arriving: Room,
        snapshots: Snapshots,
        settings: EdgeSettings,
        tracer: Tracer,
        is_traced: bool,
        instruments: EdgeInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self._endpoints = endpoints
        self._names = {endpoint.path: name for name, endpoint in endpoints.items()}
        self._doors = doors
        self._cors = cors
        self._admission = admission
        self._limits = limits
        self._metadata = metadata
        self._methods = methods
        self._sessions = sessions
        self._room = room
        self._arriving = arriving
        self._snapshots = snapshots
        self._settings = settings
        self._tracer = tracer
        # Where nothing is exported nothing is sampled, and no trace is begun only to be dropped.
        self._sampling = TraceSampling.of(settings.sample_ratio if is_traced else 0.0, settings.trusted_networks)
        self._instruments = instruments
        self._log = log
        self._open = 0
        self._call_ended = -math.inf
        """When a call, or something else that is audited, last ended, by the monotonic clock."""
        self._idle = anyio.Event()
        self.is_draining = False
        """Every answer tells its client to make a new connection, which leads to another edge."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; the server's own life cycle needs nothing of us."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # before it is accepted, that is a 403
        if scope["type"] != "http":
            return
        self._open += 1
        try:
            timeout = self._settings.write_timeout
            await self._serve(Client(scope, receive, send, closing=self.is_draining, write_timeout=timeout))
        except ClientStalled:
            self._log.info("client does not read", seconds=self._settings.write_timeout)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

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

    async def _serve(self, client: Client) -> None:
        try:
            if self._metadata is not None and self._metadata.is_asked_by(client):
                await self._metadata.answer(client)
                return
            client.extra = self._cors.headers(client.headers)
            endpoint = check_place(client, self._names, self._doors)
            if self._cors.is_preflight(client.method, client.headers):
                await client.answer(204, headers=self._cors.preflight(client.headers))
                return
            await self._serve_at(endpoint, client)
        except Rejection as rejection:
            await self._reject(client, None, rejection)
        except NoRoom:
            await self._reject(client, None, no_capacity(1))
        except ClientGone:
            pass  # nobody is left to answer
        except ClientStalled:
            raise
        except Exception:
            self._log.exception("request failed")
            if not client.is_answered:
                await self._reject(client, None, Rejection(500, INTERNAL_ERROR, "Internal error"))

    async def _serve_at(self, endpoint: str, client: Client) -> None:
        if self._sessions.takes(endpoint, client):
            client.credential = self._admission.read(endpoint, client)
            await self._sessions.serve(endpoint, client)
            return
        check_form(client)
        client.credential = self._admission.read(endpoint, client)
        size = client.stated_size(self._settings.max_request)
        is_large = size is not None and size > self._settings.large_body
        if size is not None and not is_large and client.has_arrived:
            # Most requests: what is small and whole needs no account.
            await self._serve_message(client, endpoint, await self._read(client))
        else:
            await self._serve_arriving(client, endpoint, is_large=is_large)

    async def _serve_arriving(self, client: Client, endpoint: str, *, is_large: bool) -> None:
        """Serve a request whose body is large, of unsaid size, or not whole yet.

        Group 4c: a large body of a stranger is not read, let alone kept or parsed (T29). Small ones that still arrive
        share a room; where that is full, a caller must be known as well (T38). A known caller's body takes room of its
        own as it arrives. A large one is looked at slice by slice, and others are served between (T31).
        """
        if is_large:
            await self._judge(endpoint, client)
        async with self._room.account(within=self._settings.queue_wait) as account:
            client.forget_body = account.close
            # This frame keeps neither body nor message: a stream would keep them for its life.
            await self._serve_message(
                client, endpoint, *await self._read_arriving(client, endpoint, account, is_judged=is_large)
            )

    async def _read_arriving(
        self, client: Client, endpoint: str, account: Account, *, is_judged: bool
    ) -> tuple[bytes, Any]:
        """Read a body, and parse it where it is large, with others served between."""
        arrived = shared = 0

        async def charge(size: int) -> None:
            nonlocal arrived, shared, is_judged
            beyond = max(0, min(size, arrived + size - self._settings.large_body))
            arrived += size
            if not beyond and self._arriving.try_take(size):
                shared += size
                return
            if not is_judged:
                await self._judge(endpoint, client)
                is_judged = True
            await account.charge(beyond or size)

        try:
            body = await self._read(client, charge)
        finally:
            self._arriving.give(shared)
        if len(body) <= self._settings.large_body:
            return body, _UNREAD
        for _ in scan(body, self._settings.max_values):
            await asyncio.sleep(0)
        message = parse_scanned(body)
        await asyncio.sleep(0)
        return body, message

    async def _judge(self, endpoint: str, client: Client) -> None:
        """Have a caller's credential judged before the request is known; where nobody needs one, there is none."""
        if client.credential is not None:
            await self._admission.admit(endpoint, client.credential)

    async def _read(self, client: Client, charge: Charge | None = None) -> bytes:
        return await client.read_body(self._settings.max_request, self._settings.read_timeout, charge)

    async def _serve_message(self, client: Client, endpoint: str, body: bytes, message: Any = _UNREAD) -> None:
        identifier: RequestId | None = None
        silent = False
        try:
            if message is _UNREAD:
                message = parse(body, self._settings.max_values)
            identifier = None if is_response(message) else read_id(message)
            silent = is_notification(message)
            if (response := self._sessions.response(endpoint, client, body, message)) is not None:
                identifier = None
                await self._sessions.take_response(endpoint, client, response)
                return
            served = self._endpoints[endpoint]
            envelope = check_message(
                client.headers,
                body,
                message,
                legacy=served.legacy,
                sessions=served.has_sessions,
                body_version_wins=served.body_version_wins,
            )
            if envelope.id is None:
                await self._take_notification(client, endpoint, envelope)
                return
        except Rejection as rejection:
            await self._reject(client, identifier, rejection, silent=silent)
            return
        del body, message  # a stream would keep them for its life
        await self._serve_request(client, endpoint, envelope.id, envelope)

    async def _take_notification(self, client: Client, endpoint: str, envelope: Envelope) -> None:
        if envelope.is_legacy and client.headers.all(SESSION) and self._endpoints[endpoint].has_sessions:
            await self._sessions.notify(endpoint, client, envelope)
            return
        principal = await self._admission.admit(endpoint, client.credential)
        await self._limits.take_request(endpoint, principal)
        await client.answer(202)

    async def _serve_request(self, client: Client, endpoint: str, identifier: RequestId, envelope: Envelope) -> None:
        started = time.monotonic()
        error_type: str | None = None
        tool = self._tool(endpoint, envelope)
        with self._span(client, envelope, tool) as span:
            try:
                error_type = await self._methods.answer(Request(client, endpoint, identifier, envelope, span))
            except Rejection as rejection:
                rejection = as_told(envelope, rejection)
                error_type = str(rejection.code or rejection.status)
                await self._reject(client, identifier, rejection)
            except ClientGone:
                error_type = "unanswerable"
                await client.cut()
            except ClientStalled:
                span.fail("client_stalled")
                raise
            except Exception:
                error_type = "internal"
                self._log.exception("request failed", method=envelope.method)
                await self._reject(client, identifier, internal(span.context.trace_id))
            if error_type is not None:
                span.fail(error_type)
        version = envelope.meta[PROTOCOL_VERSION_META_KEY]
        if self._endpoints[endpoint].body_version_wins and client.headers.all(VERSION) != (version.encode(),):
            self._instruments.lenient.add(1, endpoint)
        ended = time.monotonic()
        if envelope.method in AUDITED:
            self._call_ended = ended
        self._instruments.operation_duration.record(
            ended - started, envelope.method, tool or "", version, error_type or ""
        )

    async def _reject(
        self, client: Client, identifier: RequestId | None, rejection: Rejection, *, silent: bool = False
    ) -> None:
        """Send a protocol error: as an event where the answer is a stream already (D17).

        A notification never gets a JSON-RPC body (T4).
        """
        if isinstance(rejection, UnknownSession):
            identifier = None
        self._instruments.rejections.add(1, str(rejection.status), str(rejection.code or ""))
        body = b"" if silent or rejection.code is None else reply.error(identifier, rejection)
        if client.is_streaming:
            await client.send_part(reply.event(body))
            await client.close_stream()
        elif not client.is_answered:
            await client.answer(rejection.status, body, rejection.headers)

    def _tool(self, endpoint: str, envelope: Envelope) -> str | None:
        """The tool that is called, where it exists: names of a caller's own making would be labels without end."""
        name = envelope.params.get("name") if envelope.method == "tools/call" else None
        return name if isinstance(name, str) and self._snapshots.has_tool(endpoint, name) else None

    def _span(self, client: Client, envelope: Envelope, tool: str | None) -> Span:
        """Start the request's span: a child of what `_meta` names, else of what the HTTP headers name (M23)."""
        claimed = _claimed_by_meta(envelope.meta) or _claimed_by_headers(client.headers)
        trusted = client.address is not None and self._sampling.trusts(client.address)
        parent = self._sampling.parent(claimed, trusted=trusted)
        if parent is not None and not parent.sampled:
            return self._tracer.start(envelope.method, SpanKind.SERVER, parent)
        attributes: dict[str, str] = {
            names.MCP_METHOD_NAME: envelope.method,
            names.MCP_PROTOCOL_VERSION: envelope.meta[PROTOCOL_VERSION_META_KEY],
            names.JSONRPC_REQUEST_ID: str(envelope.id)[:_LONGEST_ID],
            names.NETWORK_PROTOCOL_NAME: "http",
            names.NETWORK_PROTOCOL_VERSION: client.http_version,
            names.NETWORK_TRANSPORT: "tcp",
        }
        if tool is not None:
            attributes |= {names.GEN_AI_TOOL_NAME: tool, names.GEN_AI_OPERATION_NAME: names.EXECUTE_TOOL}
        if client.address is not None:
            attributes[names.CLIENT_ADDRESS] = client.address
        return self._tracer.start(names.span_name(envelope.method, tool), SpanKind.SERVER, parent, attributes)


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
