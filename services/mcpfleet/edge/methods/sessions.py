"""Handlers of the revisions of 2025 alone: the handshake, subscriptions, the log level (M74, M80, L11)."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.contracts.apps import APPS_EXTENSION
from mcpfleet.contracts.grants import NewGrant
from mcpfleet.edge.calls.permit_check import ReadQuestion
from mcpfleet.edge.calls.read_check import Undecided
from mcpfleet.edge.methods.invoke import Callers
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.sessions.event_stream import LISTS
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.session_cache import SessionCache, SessionInfo
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.lease import StreamLeases
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.wire import reply
from mcpfleet.wire.errors import NotAnswered, bad_params, unchanged, unknown_resource
from mcpfleet.wire.filter import Filter

_OFFERED: Final = ("tools", "resources", "prompts", "completions", "logging")
"""Capabilities of these revisions."""
_OF_SESSIONS: Final = "logging"
_SESSION_ID: Final = "Mcp-Session-Id"


class SessionMethods:
    """Answers the methods of the revisions of 2025."""

    def __init__(
        self,
        sessions: SessionCache,
        streams: SessionStreams,
        callers: Callers,
        settings: EdgeSettings,
        *,
        permits: UriPermits,
        leases: StreamLeases,
    ) -> None:
        self._sessions = sessions
        self._streams = streams
        self._admission, self._limits, _ = callers
        self._permits = permits
        self._leases = leases
        self._endpoints = settings.endpoints

    async def initialize(self, exchange: Exchange) -> None:
        """Agree on the revision that the adapter chose, and begin a session where the endpoint has them (M74).

        Raises:
            Rejection: as `SessionCache.begin`, and 429 where the caller asks too often.
        """
        has_sessions = self._endpoints[exchange.endpoint].has_sessions
        fields: dict[str, Any] = {
            "protocolVersion": exchange.revision.name,
            "capabilities": capabilities(exchange, has_sessions=has_sessions),
            "serverInfo": exchange.view.server_fields(whole=exchange.revision.describes_server),
        }
        if exchange.view.instructions:
            fields["instructions"] = exchange.view.instructions
        headers = {_SESSION_ID: await self._begin(exchange)} if has_sessions else {}
        await exchange.answer(200, reply.plain_response(exchange.id, to_json(fields)), headers)

    async def _begin(self, exchange: Exchange) -> str:
        """Begin a session, and return its id."""
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        client, declared = exchange.params.get("clientInfo"), exchange.params.get("capabilities")
        info = SessionInfo(
            exchange.revision.name,
            client if isinstance(client, dict) else {},
            declared if isinstance(declared, dict) else {},
            {kind: exchange.view.list_digest(kind).hex() for kind in LISTS},
        )
        return await self._sessions.begin(exchange.endpoint, exchange.caller, info)

    async def ping(self, exchange: Exchange) -> None:
        """Answer `{}`, and nothing else in it (M77)."""
        await _done(exchange)

    async def subscribe(self, exchange: Exchange) -> None:
        """Answer `resources/subscribe`: once it is answered, changes are told on the session's stream.

        Raises:
            Rejection: -32602 in the same words for what is not there, is hidden or may not be read (L23). -32602 where
                the session subscribes to as much as it may. 403 where a scope is lacking. 504 where the resource or the
                operator's policy does not say whether the caller may.
        """
        uri = exchange.params["uri"]
        target = exchange.view.find_resource(uri)
        if target is None:
            raise unknown_resource(uri)
        endpoint, principal = exchange.endpoint, exchange.caller
        self._admission.require(endpoint, principal, target.listed.definition.scopes)
        await self._limits.take_request(endpoint, principal)
        lasts = await self._judge(exchange, uri)
        await self._check_read(ReadQuestion(endpoint, principal, uri))
        holder = self._admission.holder(endpoint, principal, exchange.credential)
        grant = NewGrant(holder=holder, pool=target.listed.pool, lasts=lasts)
        read = await self._sessions.change(_session(exchange), subscribe=uri, grant=grant)
        if read.is_full:
            raise bad_params("the session subscribes to as many resources as it may")
        assert read.session is not None
        await self._streams.watch(_session(exchange).key, read.session)
        await _done(exchange)

    async def _judge(self, exchange: Exchange, uri: str) -> float | None:
        """Ask the operator's policy, as for a listen; return the seconds that it allows, None where it judges none."""
        try:
            judged = await self._leases.judge(exchange, "listen", Filter(uris=(uri,)))
        except NotAnswered:
            raise unchanged("the policy") from None
        if judged is not None and not judged.allowed:
            raise unknown_resource(uri)
        return None if judged is None else judged.seconds

    async def _check_read(self, question: ReadQuestion) -> None:
        try:
            may_read = await self._permits.may_read(question)
        except Undecided:
            raise unchanged("the resource") from None  # its handler may have run (L24)
        if not may_read:
            raise unknown_resource(question.word)

    async def unsubscribe(self, exchange: Exchange) -> None:
        """Answer `resources/unsubscribe`, whether or not there was anything to undo."""
        await self._limits.take_control(exchange.endpoint, exchange.caller)
        await self._sessions.change(_session(exchange), unsubscribe=exchange.params["uri"])
        await _done(exchange)

    async def set_level(self, exchange: Exchange) -> None:
        """Answer `logging/setLevel`: every edge goes by it from then on."""
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        await self._sessions.change(_session(exchange), log_level=exchange.params["level"])
        await _done(exchange)


def capabilities(exchange: Exchange, *, has_sessions: bool) -> dict[str, Any]:
    """Return the endpoint's capabilities: without a session no list that changes, for nobody would be told."""
    offered = {name: value for name, value in exchange.view.capabilities.items() if name in _OFFERED}
    if not has_sessions:
        return {name: {} for name in offered if name != _OF_SESSIONS} | _own(exchange)
    return offered | _own(exchange, has_sessions=True)


def _own(exchange: Exchange, *, has_sessions: bool = False) -> dict[str, Any]:
    """Return what applications declare themselves, where it exists in the revision (X47), and Apps (X16)."""
    own = {each.definition.name for each in exchange.view.snapshot.extensions if each.definition.kind == "extension"}
    if has_sessions:  # without one, nothing is known of a client
        own.add(APPS_EXTENSION)
    offered = exchange.view.capabilities.get("extensions", {})
    extensions = {name: settings for name, settings in offered.items() if name in own}
    found: dict[str, Any] = {"extensions": extensions} if extensions else {}
    if experimental := exchange.view.capabilities.get("experimental"):
        found["experimental"] = experimental
    return found


def _session(exchange: Exchange) -> SessionRef:
    assert exchange.session is not None  # the method table says that these methods need one
    return exchange.session


async def _done(exchange: Exchange) -> None:
    """Answer `{}`, and nothing else in it (M77)."""
    await exchange.answer(200, reply.plain_response(exchange.id, b"{}"))
