"""The revisions of 2025: how their requests are answered, in a session and without one (L1 to L7, M74 to M81).

Without a session each request stands for itself, as a modern one does. What needs one (the server's own requests,
subscriptions, the log level) is neither offered nor served then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from pydantic_core import to_json

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.methods.answers import Answer, common
from mcpfleet.edge.methods.invoke import Uses
from mcpfleet.edge.methods.lists import Lists
from mcpfleet.edge.methods.sessions import SessionMethods, within
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.protocol.schema import METHODS
from mcpfleet.edge.sessions.in_flight import Running
from mcpfleet.edge.sessions.session_cache import Named, Sessions
from mcpfleet.wire import reply
from mcpfleet.wire.errors import session_needed, unknown_method
from mcpfleet.wire.headers import SESSION

Change: TypeAlias = Callable[[Inquiry, Named], Awaitable[None]]

_OFFERED: Final = ("tools", "resources", "prompts", "completions")
"""Capabilities that need no session."""
_SESSION_ID: Final = "Mcp-Session-Id"


class Legacy:
    """Answers requests of the revisions of 2025."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        lists: Lists,
        uses: Uses,
        *,
        sessions: Sessions,
        running: Running,
        methods: SessionMethods,
    ) -> None:
        self._endpoints = endpoints
        self._sessions = sessions
        self._running = running
        self._methods = methods
        self._answers: Mapping[str, Answer] = {
            **common(lists, uses),
            "ping": _ping,
        }
        self._changes: Mapping[str, tuple[str | None, Change]] = {
            "resources/subscribe": ("resources", methods.subscribe),
            "resources/unsubscribe": ("resources", methods.unsubscribe),
            "logging/setLevel": (None, methods.set_level),
        }
        """What changes a session, and the capability that it needs."""

    async def answer(self, inquiry: Inquiry) -> str | None:
        """Answer a request whose caller is admitted; returns the error's type, or None for a result.

        Raises:
            Rejection: the answer is an error, and nothing was sent yet: 404 where its session is gone, 400 where it
                names none and needs one.
        """
        request = inquiry.request
        has_sessions = self._endpoints[request.endpoint].has_sessions
        if request.envelope.method == "initialize":
            await self._initialize(inquiry, has_sessions=has_sessions)
            return None
        if has_sessions and request.client.headers.all(SESSION):
            named = await self._sessions.find(request.endpoint, inquiry.principal, request.client)
            return await self._running.answer(
                named, within(inquiry, named), lambda known: self._answer_within(known, named)
            )
        if has_sessions and request.envelope.method in self._changes:
            raise session_needed()
        return await self._answer(inquiry)

    async def _answer_within(self, inquiry: Inquiry, named: Named) -> str | None:
        capability, change = self._changes.get(inquiry.request.envelope.method, (None, None))
        if change is None or (capability is not None and capability not in inquiry.view.capabilities):
            return await self._answer(inquiry)
        await change(inquiry, named)
        return None

    async def _answer(self, inquiry: Inquiry) -> str | None:
        envelope = inquiry.request.envelope
        answer, known = self._answers.get(envelope.method), METHODS.get(envelope.method)
        if answer is None or (known is not None and known.capability not in inquiry.view.capabilities):
            raise unknown_method()
        if known is not None:
            known.check(envelope.params)
        return await answer(inquiry)

    async def _initialize(self, inquiry: Inquiry, *, has_sessions: bool) -> None:
        """Agree on the revision that the ladder chose, and begin a session (M74)."""
        request, snapshot = inquiry.request, inquiry.view.snapshot
        server = {"name": snapshot.name, "version": snapshot.version}
        if snapshot.title:
            server["title"] = snapshot.title
        fields: dict[str, Any] = {
            "protocolVersion": request.envelope.revision,
            "capabilities": capabilities(inquiry, has_sessions=has_sessions),
            "serverInfo": server,
        }
        if snapshot.instructions:
            fields["instructions"] = snapshot.instructions
        headers = {_SESSION_ID: await self._methods.begin(inquiry)} if has_sessions else {}
        await request.client.answer(200, reply.plain_response(request.id, to_json(fields)), headers)


def capabilities(inquiry: Inquiry, *, has_sessions: bool) -> dict[str, Any]:
    """What the endpoint offers: to clients without a session no list that changes, for they would not be told."""
    offered = {name: value for name, value in inquiry.view.capabilities.items() if name in _OFFERED}
    if not has_sessions:
        return {name: {} for name in offered}
    return {**offered, "logging": {}}


async def _ping(inquiry: Inquiry) -> None:
    """Answer `{}`, and nothing else in it (M77)."""
    await inquiry.request.client.answer(200, reply.plain_response(inquiry.request.id, b"{}"))
