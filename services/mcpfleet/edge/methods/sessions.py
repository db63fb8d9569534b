"""What clients of 2025 ask for within a session: its beginning, subscriptions, the log level (M74, M80, L11)."""

from __future__ import annotations

from typing import Any, Final

from mcpfleet.contracts.sessions import Session
from mcpfleet.edge.calls.read_check import ReadQuestion, Undecided
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.protocol.validation import LOG_LEVELS
from mcpfleet.edge.sessions.event_stream import LISTS
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.session_cache import Known, Named, Sessions
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.wire import reply
from mcpfleet.wire.errors import bad_params, unchanged, unknown_resource
from mcpfleet.wire.filter import LONGEST_URI
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

_LEVEL: Final = "info"
"""What a client hears that has not said what it wants."""


class SessionMethods:
    """Answers what only sessions have."""

    def __init__(
        self, sessions: Sessions, streams: SessionStreams, admission: Admission, limits: Limits, permits: UriPermits
    ) -> None:
        self._sessions = sessions
        self._streams = streams
        self._admission = admission
        self._limits = limits
        self._permits = permits

    async def begin(self, inquiry: Inquiry) -> str:
        """Begin a session for who shakes hands; returns its id.

        Raises:
            Rejection: as `Sessions.begin`, and 429 where the caller asks too often.
        """
        request = inquiry.request
        await self._limits.take_request(request.endpoint, inquiry.principal)
        client, declared = request.params.get("clientInfo"), request.params.get("capabilities")
        known = Known(
            request.envelope.revision,
            client if isinstance(client, dict) else {},
            declared if isinstance(declared, dict) else {},
            {kind: inquiry.view.list_digest(kind).hex() for kind in LISTS},
        )
        return await self._sessions.begin(request.endpoint, inquiry.principal, known)

    async def subscribe(self, inquiry: Inquiry, named: Named) -> None:
        """Answer `resources/subscribe`: once it is answered, changes are told on the session's stream.

        Raises:
            Rejection: -32602 in the same words for what is not there, is hidden or may not be read (L23); -32602 where
                the session subscribes to as much as it may; 403 where a scope is lacking; 504 where the resource does
                not say whether the caller may read it.
        """
        uri = _uri(inquiry)
        target = inquiry.view.find_resource(uri)
        if target is None:
            raise unknown_resource(uri)
        endpoint, principal = inquiry.request.endpoint, inquiry.principal
        self._admission.require(endpoint, principal, target.listed.definition.scopes)
        await self._limits.take_request(endpoint, principal)
        await self._check_read(ReadQuestion(endpoint, principal, uri))
        read = await self._sessions.change(named, subscribe=uri)
        if read.is_full:
            raise bad_params("the session subscribes to as many resources as it may")
        assert read.session is not None
        await self._streams.watch(named.key, read.session)
        await _done(inquiry)

    async def _check_read(self, question: ReadQuestion) -> None:
        try:
            may_read = await self._permits.may_read(question)
        except Undecided:
            raise unchanged("the resource") from None  # its handler may have run (L24)
        if not may_read:
            raise unknown_resource(question.uri)

    async def unsubscribe(self, inquiry: Inquiry, named: Named) -> None:
        """Answer `resources/unsubscribe`, whether or not there was anything to undo."""
        await self._limits.take_control(inquiry.request.endpoint, inquiry.principal)
        await self._sessions.change(named, unsubscribe=_uri(inquiry))
        await _done(inquiry)

    async def set_level(self, inquiry: Inquiry, named: Named) -> None:
        """Answer `logging/setLevel`: every edge goes by it from then on.

        Raises:
            Rejection: -32602 for a level that there is not.
        """
        level = inquiry.request.params.get("level")
        if not isinstance(level, str) or level not in LOG_LEVELS:
            raise bad_params("unknown log level")
        await self._limits.take_request(inquiry.request.endpoint, inquiry.principal)
        await self._sessions.change(named, log_level=level)
        await _done(inquiry)


def within(inquiry: Inquiry, named: Named) -> Inquiry:
    """The same request, with what its session knows of the client."""
    envelope, session = inquiry.request.envelope, named.session
    meta = {**envelope.meta, **_known_of(session)}
    envelope = envelope._replace(meta=meta, revision=session.revision)
    return inquiry._replace(request=inquiry.request._replace(envelope=envelope), session=named.key)


def _known_of(session: Session) -> dict[str, Any]:
    return {
        PROTOCOL_VERSION_META_KEY: session.revision,
        CLIENT_CAPABILITIES_META_KEY: session.capabilities,
        CLIENT_INFO_META_KEY: session.client,
        LOG_LEVEL_META_KEY: session.log_level or _LEVEL,
    }


def _uri(inquiry: Inquiry) -> str:
    uri = inquiry.request.params.get("uri")
    if not isinstance(uri, str) or not 0 < len(uri) <= LONGEST_URI:
        raise bad_params(f"`uri` must have 1 to {LONGEST_URI} characters")
    return uri


async def _done(inquiry: Inquiry) -> None:
    """Answer `{}`, and nothing else in it (M77)."""
    await inquiry.request.client.answer(200, reply.plain_response(inquiry.request.id, b"{}"))
