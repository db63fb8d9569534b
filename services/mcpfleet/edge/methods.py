"""What each method answers: groups 11 and 12 of the ladder (T11), which need the caller and its view."""

from __future__ import annotations

import time
from typing import Any

from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import WANTS_PROGRESS, CallBody
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.admission import Admission
from mcpfleet.edge.calls import Calls, Order
from mcpfleet.edge.client import Client, ClientGone
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.snapshots import Snapshots
from mcpfleet.edge.tool_call import Target, ToolCall
from mcpfleet.edge.waiting import Dispatch
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire import parameters, reply
from mcpfleet.wire.capabilities import missing
from mcpfleet.wire.envelope import Envelope, RequestId
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
        settings: EdgeSettings,
        log: FilteringBoundLogger,
    ) -> None:
        self._admission = admission
        self._snapshots = snapshots
        self._calls = calls
        self._dispatch = dispatch
        self._settings = settings
        self._log = log

    async def answer(self, client: Client, endpoint: str, envelope: Envelope, trace: TraceContext) -> str | None:
        """Answer a request; returns the error's type, or None for a result.

        Raises:
            Rejection: the answer is an error, and nothing was sent yet.
            ClientGone: `server/discover` cannot be answered truly: the connection closes (D15).
        """
        assert envelope.id is not None
        if envelope.method == "server/discover":
            await self._discover(client, endpoint, envelope.id)
            return None
        principal = await self._admission.admit(endpoint)
        view = self._snapshots.view(endpoint, principal)
        if view is None:
            raise not_answered("the catalog")
        if "tools" not in view.capabilities:
            raise unknown_method()
        if envelope.method == "tools/list":
            result = view.tools_list(_milliseconds(self._settings.list_ttl))
            await client.answer(200, reply.response(envelope.id, result, view.server))
            return None
        return await self._call(client, envelope, principal, view, trace)

    async def _discover(self, client: Client, endpoint: str, identifier: RequestId) -> None:
        """Answer from memory: neither admission nor limits nor a bus are needed (D15, M32)."""
        view = self._snapshots.view(endpoint, Principal())
        if view is None:
            raise ClientGone
        result = view.discover(SERVED, _milliseconds(self._settings.discover_ttl))
        await client.answer(200, reply.response(identifier, result, view.server))

    async def _call(
        self, client: Client, envelope: Envelope, principal: Principal, view: View, trace: TraceContext
    ) -> str | None:
        tool = view.tools.get(envelope.params["name"])
        if tool is None:
            raise bad_params("unknown tool")
        definition = tool.listed.definition
        arguments = envelope.params.get("arguments", {})
        parameters.check(client.headers, tool.mirrored, arguments)
        capabilities = envelope.meta[CLIENT_CAPABILITIES_META_KEY]
        lacking = missing(definition.asks, capabilities)
        if lacking:
            raise missing_capabilities(lacking)
        client_info = envelope.meta.get(CLIENT_INFO_META_KEY)
        body = CallBody(
            arguments=arguments,
            capabilities=capabilities,
            client=client_info if isinstance(client_info, dict) else {},
            principal=principal,
        )
        token = progress_token(envelope.meta)
        order = Order(
            pool=tool.listed.pool,
            definition=tool.listed.digest,
            body=body.write(),
            deadline=time.monotonic() + definition.timeout + self._settings.deadline_grace,
            trace=trace,
            flags=WANTS_PROGRESS if token is not None else "",
            outlives_client=definition.on_disconnect == "continue",
        )
        assert envelope.id is not None
        target = Target(envelope.id, view.server, token, trace.trace_id)
        call = ToolCall(
            client, target, calls=self._calls, dispatch=self._dispatch, settings=self._settings, log=self._log
        )
        return await call.run(order)


def progress_token(meta: dict[str, Any]) -> RequestId | None:
    """The token under which the client hears progress, where it is a valid one (P1)."""
    token = meta.get("progressToken")
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
