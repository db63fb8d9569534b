"""The revisions of 2025 as an adapter: their requests become exchanges, and replies take their form (L1 to L7, M74).

Without a session each request stands for itself, as a modern one does. The server's own requests, subscriptions and the
log level need a session; without one they are neither offered nor served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from mcp_types import INVALID_PARAMS

from mcpfleet.contracts.apps import without_apps
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Definition, Kind
from mcpfleet.contracts.sessions import Session
from mcpfleet.edge.methods.invoke import Callers
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef, offered_handler
from mcpfleet.edge.protocol.revision import NEWEST, Input, Revision
from mcpfleet.edge.sessions.in_flight import InFlightRequests
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.wire import projection, reply
from mcpfleet.wire.envelope import Envelope, RequestId
from mcpfleet.wire.errors import (
    Rejection,
    SessionFault,
    bad_params,
    not_modern,
    session_needed,
    unknown_method,
    unsupported_version,
)
from mcpfleet.wire.filter import ListKind
from mcpfleet.wire.headers import SESSION, Headers
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LEGACY,
    LOG_LEVEL_META_KEY,
    MODERN,
    OLDEST,
    PROTOCOL_VERSION_META_KEY,
)

_MODERN_PARAMS: Final = ("inputResponses", "requestState")
RESOURCE_NOT_FOUND: Final = -32002
"""The code of these revisions for an unknown resource (M24)."""
_LISTED: Final[Mapping[str, ListKind]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
"""The list that each method reads."""
_OPERATION: Final = frozenset({400, 404, 500})
"""Statuses of an operation's error, which these revisions send with 200. Those about a caller or capacity stay."""
_LEVEL: Final = "info"
"""The log level of a client that has set none."""


class Revision2025(Revision):
    """One of the revisions of 2025, for a request that stands for itself."""

    checks_first = False
    mirrors_arguments = False  # L6
    leaving_cancels = False  # P9
    input = Input.NONE
    takes_tasks = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.bad_arguments_are_errors = name == OLDEST
        self.describes_server = name != OLDEST

    def response(
        self,
        identifier: RequestId,
        result: bytes,
        server: bytes,
        definition: Definition | None,
        language: str | None = None,
    ) -> bytes:
        """Compose a response with the members that this revision has; it wraps structured content that is no object."""
        del server
        wraps = (
            definition is not None
            and definition.kind == "tool"
            and projection.needs_wrapping(definition.wire.get("outputSchema"))
        )
        try:
            return reply.plain_response(
                identifier, projection.result(result, self.name, wraps=wraps, language=language)
            )
        except ValueError as error:
            raise reply.NotSpliceable("a result must be an object") from error

    def rejection(self, rejection: Rejection) -> Rejection:
        """Return an operation's error with status 200, and an unknown resource with its own code (L2, M42)."""
        if rejection.status not in _OPERATION or isinstance(rejection, SessionFault):
            return rejection
        is_resource = rejection.code == INVALID_PARAMS and isinstance(rejection.data, dict) and "uri" in rejection.data
        code = RESOURCE_NOT_FOUND if is_resource else rejection.code
        return Rejection(200, code, rejection.message, rejection.data)

    def upstream_error(self, code: int, message: str, data: Any) -> Rejection:
        """Return a source's own error as it is: these revisions have no codes that are never sent (B3)."""
        return Rejection(200, code, message, data)

    def status(self, status: int) -> int:
        """Return 200 for an operation's error."""
        return 200 if status in _OPERATION else status

    def declarations(self, kind: Kind, items: bytes) -> bytes:
        """Return the items with the members that this revision has."""
        return projection.declarations(kind, items, self.name)


class Revision2025InSession(Revision2025):
    """The same within a session, whose client can be asked, and may come back for what it has left."""

    ends_with_connection = False
    input = Input.OWN_RESPONSE


class Compat2025:
    """Turns requests of 2025 into exchanges, within their session where they name one."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        callers: Callers,
        sessions: SessionCache,
        in_flight: InFlightRequests,
    ) -> None:
        self._endpoints = endpoints
        self._callers = callers
        self._sessions = sessions
        self._in_flight = in_flight
        self._revisions = {name: Revision2025(name) for name in LEGACY}
        self._in_session = {name: Revision2025InSession(name) for name in LEGACY}

    def served(self, endpoint: str) -> Sequence[str]:
        """Return the revisions that an endpoint serves, the newest first."""
        return self._endpoints[endpoint].revisions

    def in_session(self, exchange: Exchange) -> bool:
        """Return whether a request names a session, where the endpoint has sessions."""
        return self._endpoints[exchange.endpoint].has_sessions and bool(exchange.headers.all(SESSION))

    def has_notification(self, exchange: Exchange) -> bool:
        """Return whether a notification is of these revisions, which accept every one.

        A session's notification needs no version header: it is of the session's revision (L4).
        """
        version = self._endpoints[exchange.endpoint].stated(exchange.headers.version())
        if version is None:
            return self.in_session(exchange)
        return version in LEGACY and version in self.served(exchange.endpoint)

    def adapt(self, exchange: Exchange) -> None:
        """Choose the revision, from the body first (M1), and give a message of 2025 the members of a modern one.

        A request that claims to be modern in its body is modern. So is one that claims nothing, unless the endpoint has
        one revision alone, of 2025. An endpoint without the modern revision answers modern requests by an empty 400, on
        which clients send `initialize` (X62).

        Raises:
            Rejection: -32022 for a revision that is not served.
        """
        message, endpoint = exchange.message, self._endpoints[exchange.endpoint]
        served = endpoint.revisions
        exchange.revision = NEWEST
        if PROTOCOL_VERSION_META_KEY in message.meta:
            if not endpoint.is_modern:
                raise not_modern()
            return
        if message.method == "initialize":
            stated: str | None = _agreed(message.params.get("protocolVersion"), exchange.headers, served)
        else:
            stated = endpoint.stated(exchange.headers.version())
            if stated is not None and stated not in served:
                if stated == MODERN:
                    raise not_modern()
                raise unsupported_version(stated, served)
            if stated is None and self.in_session(exchange):
                stated = LEGACY[0]
        if stated is None and not endpoint.is_modern:
            raise not_modern()
        if stated in self._revisions:
            exchange.revision = self._revisions[stated]
            exchange.message = _as_modern(message, stated)

    async def answer(self, exchange: Exchange) -> str | None:
        """Answer an exchange of these revisions whose caller is admitted.

        Raises:
            Rejection: 404 where its session is gone, 400 where it names none and needs one, and as its handler.
        """
        method, endpoint = exchange.method, self._endpoints[exchange.endpoint]
        if method is not None and method.begins_session:
            return await method.handler(exchange)
        if self.in_session(exchange):
            found = await self._sessions.find(exchange)
            exchange.session = found
            exchange.revision = self._in_session[found.session.revision]
            exchange.message = _with_session(exchange.message, found.session, apps=endpoint.apps_2025)
            if exchange.has_apps:
                exchange.view = self._callers.view(exchange)
            with self._in_flight.open(exchange, found) as request:
                if not request.is_cancelled:
                    if method is not None and method.name in _LISTED:
                        await self._note_listed(exchange, found, _LISTED[method.name])
                    return await _answer(exchange)
            return await request.end()
        if method is not None and method.needs_session:
            raise session_needed() if endpoint.has_sessions else unknown_method()
        return await _answer(exchange)

    async def _note_listed(self, exchange: Exchange, ref: SessionRef, kind: ListKind) -> None:
        """Let the session be told again of a list that its client reads now, where it is another than it knew (X59)."""
        digest = exchange.view.list_digest(kind).hex()
        if ref.session.lists is not None and ref.session.lists.get(kind) != digest:
            with suppress(Rejection):  # the next list notes it
                await self._sessions.change(ref, lists={kind: digest})


async def _answer(exchange: Exchange) -> str | None:
    """Have the method's handler answer, once its parameters are checked."""
    handler = offered_handler(exchange)
    assert exchange.method is not None  # it has a handler
    exchange.method.check(exchange.params)
    return await handler(exchange)


def _agreed(requested: Any, headers: Headers, served: Sequence[str]) -> str:
    """Return the revision of a handshake: the requested one, else the header's, else the newest of 2025 (L3, M74).

    A header that says anything else does not matter: nothing was agreed on yet that it could state (L20).
    """
    legacy = [version for version in served if version in LEGACY]
    if not legacy:
        raise unsupported_version(requested if isinstance(requested, str) else None, served)
    if requested is not None and not isinstance(requested, str):
        raise bad_params("protocolVersion must be a string")
    if requested in legacy:
        return str(requested)
    try:
        stated = headers.version()
    except Rejection:
        stated = None
    return stated if stated in legacy else legacy[0]


def _as_modern(message: Envelope, revision: str) -> Envelope:
    """Give a message a modern `_meta`, and take away what only modern clients send.

    A handshake says its client's capabilities: the lists that its session will know may depend on them (X16).
    """
    declared = message.params.get("capabilities") if message.method == "initialize" else None
    params = {name: value for name, value in message.params.items() if name not in _MODERN_PARAMS and value is not None}
    meta = {name: value for name, value in message.meta.items() if name != LOG_LEVEL_META_KEY}
    meta |= {
        PROTOCOL_VERSION_META_KEY: revision,
        CLIENT_CAPABILITIES_META_KEY: declared if isinstance(declared, dict) else {},
    }
    return message._replace(params=params, meta=meta)


def _with_session(message: Envelope, session: Session, *, apps: bool) -> Envelope:
    """Add what the session knows of the client."""
    capabilities = session.capabilities if apps else without_apps(session.capabilities)
    known = {
        PROTOCOL_VERSION_META_KEY: session.revision,
        CLIENT_CAPABILITIES_META_KEY: capabilities,
        CLIENT_INFO_META_KEY: session.client,
        LOG_LEVEL_META_KEY: session.log_level or _LEVEL,
    }
    return message._replace(meta={**message.meta, **known})
