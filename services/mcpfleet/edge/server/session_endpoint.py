"""What clients of 2025 send of a session beside its requests: GET, DELETE, responses and notifications (M75, M76)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.validation import check_events_welcome
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.in_flight import Running
from mcpfleet.edge.sessions.questions import Questions
from mcpfleet.edge.sessions.session_cache import Named, Sessions
from mcpfleet.edge.transport.client import Client
from mcpfleet.wire.envelope import Envelope, Response, read_id, read_response
from mcpfleet.wire.errors import not_answered, session_needed
from mcpfleet.wire.headers import SESSION
from mcpfleet.wire.protocol import LEGACY

_METHODS: Final = frozenset({"GET", "DELETE"})


class SessionDoor:
    """Lets in what belongs to sessions; endpoints without sessions have no such door."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        admission: Admission,
        limits: Limits,
        snapshots: Snapshots,
        *,
        sessions: Sessions,
        streams: SessionStreams,
        questions: Questions,
        running: Running,
    ) -> None:
        self._endpoints = endpoints
        self._admission = admission
        self._limits = limits
        self._snapshots = snapshots
        self._sessions = sessions
        self._streams = streams
        self._questions = questions
        self._running = running

    def takes(self, endpoint: str, client: Client) -> bool:
        """Whether a request by GET or DELETE is of a client of 2025: it names a session, or such a revision."""
        if client.method not in _METHODS or not self._endpoints[endpoint].has_sessions:
            return False
        return bool(client.headers.all(SESSION)) or client.headers.version() in LEGACY

    async def serve(self, endpoint: str, client: Client) -> None:
        """Serve a session's stream, or end the session.

        Raises:
            Rejection: 404 or 400 where the session is none; else as any request's, without an id.
            ClientStalled: the client does not read.
        """
        if client.method == "GET":
            check_events_welcome(client)
        if not client.headers.all(SESSION):
            raise session_needed()
        principal, named = await self._find(endpoint, client)
        if client.method == "DELETE":
            await self._sessions.end(named)
            await client.answer(204)
            return
        view = self._snapshots.view(endpoint, principal)
        if view is None:
            raise not_answered("the catalog")
        await self._streams.serve(client, endpoint, principal, view, named)

    def response(self, endpoint: str, client: Client, body: bytes, message: Any) -> Response | None:
        """Read a body that is a response to a request of ours; None where it is none, or came in no session."""
        if not client.headers.all(SESSION) or not self._endpoints[endpoint].has_sessions:
            return None
        return read_response(body, message)

    async def take_response(self, endpoint: str, client: Client, response: Response) -> None:
        """Hand a response to the call that waits for it, at whichever edge that is.

        Raises:
            Rejection: there is no such session, or it cannot be handed over now.
        """
        _, named = await self._find(endpoint, client)
        await self._questions.give(named.key, response)
        await client.answer(202)

    async def notify(self, endpoint: str, client: Client, envelope: Envelope) -> None:
        """Take a session's notification; of those that there are, only one means anything to us.

        Raises:
            Rejection: there is no such session.
        """
        _, named = await self._find(endpoint, client)
        request = read_id({"id": envelope.params.get("requestId")})
        if envelope.method == "notifications/cancelled" and request is not None:
            self._running.take_back(named.key, request)
        await client.answer(202)

    async def _find(self, endpoint: str, client: Client) -> tuple[Principal, Named]:
        principal = await self._admission.admit(endpoint, client.credential)
        await self._limits.take_control(endpoint, principal)
        return principal, await self._sessions.find(endpoint, principal, client)
