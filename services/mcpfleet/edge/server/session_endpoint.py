"""A session's messages beside its requests: GET, DELETE, responses and notifications of clients of 2025 (M75, M76)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.methods.invoke import Callers
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.protocol.validation import check_events_welcome
from mcpfleet.edge.server.compat_2025 import Revision2025InSession
from mcpfleet.edge.sessions.elicitation import ClientRequests
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.in_flight import InFlightRequests
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.wire.envelope import Response, read_id
from mcpfleet.wire.errors import session_needed
from mcpfleet.wire.headers import SESSION
from mcpfleet.wire.protocol import LEGACY

_METHODS: Final = frozenset({"GET", "DELETE"})


class SessionEndpoint:
    """Serves the messages of sessions; an endpoint without sessions takes none."""

    def __init__(  # noqa: PLR0917  # the parts of sessions, behind the callers
        self,
        endpoints: Mapping[str, Endpoint],
        callers: Callers,
        sessions: SessionCache,
        streams: SessionStreams,
        requests: ClientRequests,
        in_flight: InFlightRequests,
    ) -> None:
        self._endpoints = endpoints
        self._callers = callers
        self._sessions = sessions
        self._streams = streams
        self._requests = requests
        self._in_flight = in_flight

    def takes(self, exchange: Exchange) -> bool:
        """Return whether a GET or DELETE comes from a client of 2025: it names a session, or such a revision."""
        if exchange.http_method not in _METHODS or not self._endpoints[exchange.endpoint].has_sessions:
            return False
        return bool(exchange.headers.all(SESSION)) or self._stated(exchange) in LEGACY

    def _stated(self, exchange: Exchange) -> str | None:
        return self._endpoints[exchange.endpoint].stated(exchange.headers.version())

    async def serve(self, exchange: Exchange) -> None:
        """Serve a session's stream, or end the session.

        Raises:
            Rejection: 404 or 400 where the session is none; else as any request's, without an id.
            ClientStalled: the client does not read.
        """
        if exchange.http_method == "GET":
            check_events_welcome(exchange)
        if not exchange.headers.all(SESSION):
            raise session_needed()
        found = await self._find(exchange)
        if exchange.http_method == "DELETE":
            await self._sessions.end(found)
            await exchange.answer(204)
            return
        exchange.session = found
        exchange.revision = Revision2025InSession(found.session.revision)
        if exchange.caller.group is not None:
            await self._callers.snapshots.prepare(exchange.endpoint, exchange.caller)
        exchange.read_preference(header_counts=True)
        exchange.see(self._callers.view(exchange))
        await self._streams.serve(exchange, found)

    async def take_response(self, exchange: Exchange, response: Response) -> None:
        """Hand a response to the call that waits for it, at any edge.

        Raises:
            Rejection: there is no such session, or it cannot be handed over now.
        """
        found = await self._find(exchange)
        await self._requests.give(found.key, response)
        await exchange.answer(202)

    async def notify(self, exchange: Exchange) -> None:
        """Take a session's notification; only a cancellation has an effect.

        Raises:
            Rejection: there is no such session.
        """
        found, message = await self._find(exchange), exchange.message
        request = read_id({"id": message.params.get("requestId")})
        if message.method == "notifications/cancelled" and request is not None:
            self._in_flight.cancel(found.key, request)
        await exchange.answer(202)

    async def _find(self, exchange: Exchange) -> SessionRef:
        exchange.caller = await self._callers.admission.admit(exchange.endpoint, exchange.credential)
        await self._callers.limits.take_control(exchange.endpoint, exchange.caller)
        return await self._sessions.find(exchange)
