"""What each method answers: groups 11 and 12 of the ladder (T11), which need the caller and its view."""

from __future__ import annotations

import time
from typing import Any

from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import WANTS_PROGRESS, CallBody
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.admission import Admission
from mcpfleet.edge.bodies import Bodies
from mcpfleet.edge.calls import Calls, Order
from mcpfleet.edge.client import ClientGone
from mcpfleet.edge.request import Request
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.snapshots import Snapshots
from mcpfleet.edge.tool_call import Target, ToolCall
from mcpfleet.edge.waiting import Dispatch
from mcpfleet.views.view import Tool, View
from mcpfleet.wire import parameters, reply
from mcpfleet.wire.capabilities import missing
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import bad_params, missing_capabilities, not_answered, unknown_method
from mcpfleet.wire.versions import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, SERVED


class Methods:
    """Answers requests that the ladder let through."""

    def __init__(
        self,
        *,
        admission: Admission,
        snapshots: Snapshots,
        calls: Calls,
        dispatch: Dispatch,
        bodies: Bodies,
        settings: EdgeSettings,
        log: FilteringBoundLogger,
    ) -> None:
        self._admission = admission
        self._snapshots = snapshots
        self._calls = calls
        self._dispatch = dispatch
        self._bodies = bodies
        self._settings = settings
        self._log = log

    async def answer(self, request: Request) -> str | None:
        """Answer a request; returns the error's type, or None for a result.

        Raises:
            Rejection: the answer is an error, and nothing was sent yet.
            ClientGone: `server/discover` cannot be answered truly: the connection closes (D15).
        """
        if request.envelope.method == "server/discover":
            await self._discover(request)
            return None
        principal = await self._admission.admit(request.endpoint)
        view = self._snapshots.view(request.endpoint, principal)
        if view is None:
            raise not_answered("the catalog")
        if "tools" not in view.capabilities:
            raise unknown_method()
        if request.envelope.method == "tools/list":
            result = view.tools_list(_milliseconds(self._settings.list_ttl))
            await request.client.answer(200, reply.response(request.id, result, view.server))
            return None
        return await self._call(request, principal, view)

    async def _discover(self, request: Request) -> None:
        """Answer from memory: neither admission nor limits nor a bus are needed (D15, M32)."""
        view = self._snapshots.view(request.endpoint, ANONYMOUS)
        if view is None:
            raise ClientGone
        result = view.discover(SERVED, _milliseconds(self._settings.discover_ttl))
        await request.client.answer(200, reply.response(request.id, result, view.server))

    async def _call(self, request: Request, principal: Principal, view: View) -> str | None:
        token = progress_token(request.envelope.meta)
        flags = WANTS_PROGRESS if token is not None else ""

        def make_order() -> Order:
            newest = self._snapshots.view(request.endpoint, principal) or view
            return self._order(_callable_tool(newest, request), request, principal, flags)

        target = Target(request.id, view.server, token, request.trace.trace_id)
        call = ToolCall(
            request.client,
            target,
            calls=self._calls,
            dispatch=self._dispatch,
            bodies=self._bodies,
            settings=self._settings,
            log=self._log,
        )
        return await call.run(make_order)

    def _order(self, tool: Tool, request: Request, principal: Principal, flags: str) -> Order:
        definition, envelope = tool.listed.definition, request.envelope
        client_info = envelope.meta.get(CLIENT_INFO_META_KEY)
        body = CallBody(
            arguments=envelope.params.get("arguments", {}),
            capabilities=envelope.meta[CLIENT_CAPABILITIES_META_KEY],
            client=client_info if isinstance(client_info, dict) else {},
            principal=principal,
        )
        return Order(
            pool=tool.listed.pool,
            definition=tool.listed.digest,
            body=body.write(),
            deadline=time.monotonic() + definition.timeout + self._settings.deadline_grace,
            trace=request.trace,
            flags=flags,
            outlives_client=definition.on_disconnect == "continue",
        )


def _callable_tool(view: View, request: Request) -> Tool:
    """Find the tool in the caller's view, and check what only the tool can tell (T11, group 11).

    Raises:
        Rejection: -32602 for an unknown tool, -32020 for its headers, -32021 for a capability that it needs.
    """
    envelope = request.envelope
    tool = view.tools.get(envelope.params["name"])
    if tool is None:
        raise bad_params("unknown tool")
    parameters.check(request.client.headers, tool.mirrored, envelope.params.get("arguments", {}))
    lacking = missing(tool.listed.definition.asks, envelope.meta[CLIENT_CAPABILITIES_META_KEY])
    if lacking:
        raise missing_capabilities(lacking)
    return tool


def progress_token(meta: dict[str, Any]) -> RequestId | None:
    """The token under which the client hears progress, where it is a valid one (P1)."""
    token = meta.get("progressToken")
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
