"""Updates of a running call for its client: progress, log messages, and the comments that keep a stream alive."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from pydantic_core import from_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import FrameKind
from mcpfleet.edge.calls.call_request import CallRequest
from mcpfleet.edge.calls.in_flight import Call
from mcpfleet.edge.calls.queue import CallWatch
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import ClientStalled
from mcpfleet.wire import reply


@dataclass(slots=True, eq=False)
class Elicited:
    """The questions of a handler within one request of a session's client, over all rounds of that request."""

    body: bytes | None = None
    """The worker's `ask` frame; None where the call has ended otherwise."""
    reached: float = -math.inf
    """The greatest progress that was told. A handler that runs again begins anew, and its client hears no less."""


class ClientUpdates(CallWatch):
    """Sends the updates of one call; the first makes the answer a stream (P5)."""

    def __init__(
        self, request: CallRequest, settings: EdgeSettings, log: FilteringBoundLogger, elicited: Elicited | None
    ) -> None:
        super().__init__(settings)
        self._exchange = request.exchange
        self._request = request
        self._log = log
        self._elicited = elicited
        self._silent_since = time.monotonic()
        self.stalled: ClientStalled | None = None
        """Why the client was given up, where the call goes on."""

    @property
    def tool(self) -> str:
        """The tool that is called; empty for what is no call of a tool."""
        return self._request.definition.name if self._request.is_tool else ""

    @property
    def is_taken_back(self) -> bool:
        """True where the client asked for the cancellation."""
        return self._exchange.is_unwanted

    async def heard(self, call: Call) -> None:
        """Send the reports and log messages that have come."""
        while call.notices and not self._exchange.is_gone:
            kind, body = call.notices.popleft()
            try:
                notice = self._notice(kind, body)
            except reply.NotSpliceable as error:
                self._log.error("malformed notice", pool=call.order.pool, error=str(error))
                continue
            if notice is not None:
                await self._send(reply.event(notice))

    def patience(self, call: Call) -> float:
        """Return the seconds until a silent connection must show that it lives."""
        del call
        settings = self._settings
        limit = settings.keepalive if self._exchange.is_streaming else settings.silent_after
        left = self._silent_since + limit - time.monotonic()
        return max(0.0, left) if self._request.may_stream else limit

    async def silent(self) -> None:
        """Send a comment: proxies cut quiet connections, and that is a cancellation (D17)."""
        if self._request.may_stream:
            await self._send(reply.KEEPALIVE)

    def _notice(self, kind: FrameKind, body: bytes) -> bytes | None:
        if kind is FrameKind.LOG:
            return reply.log_message(body) if self._request.hears_logs else None
        token = self._exchange.progress_token
        if token is None or not self._request.hears_progress:
            return None
        if self._elicited is not None and not _goes_forward(self._elicited, body):
            return None
        return reply.progress(token, body, self._exchange.told_language)

    async def _send(self, data: bytes) -> None:
        """Send events; a call of a session goes on where its client does not read them, as where it leaves."""
        try:
            await self._exchange.send_events(data)
        except ClientStalled as stalled:
            if self._exchange.revision.ends_with_connection:
                raise
            self.stalled = stalled
            self._exchange.leave()
        self._silent_since = time.monotonic()


def _goes_forward(elicited: Elicited, body: bytes) -> bool:
    """Return whether a report is of more than those of all rounds before it (P2)."""
    try:
        reached = from_json(body)["progress"]
    except (ValueError, LookupError, TypeError):
        raise reply.NotSpliceable("a report must have its progress") from None
    if not isinstance(reached, int | float) or reached <= elicited.reached:
        return False
    elicited.reached = reached
    return True
