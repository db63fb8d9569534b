"""The order of checks, top to bottom: the way of an exchange through the edge. The first failure wins (T11)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.edge.identity.metadata import Metadata
from mcpfleet.edge.methods.invoke import Callers
from mcpfleet.edge.methods.registry import MethodTable
from mcpfleet.edge.protocol.exchange import Exchange, offered_handler
from mcpfleet.edge.protocol.validation import check_form, check_newest, check_notification, check_place, read_message
from mcpfleet.edge.server.audit import Audit
from mcpfleet.edge.server.bodies import RequestBodies
from mcpfleet.edge.server.compat_2025 import Compat2025
from mcpfleet.edge.server.front_page import FrontPage
from mcpfleet.edge.server.session_endpoint import SessionEndpoint
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.edge.transport.http_exchange import ClientGone
from mcpfleet.wire.envelope import is_notification, is_response, read_id, read_response
from mcpfleet.wire.errors import Rejection

_BY_LANGUAGE: Final = (b"vary", b"Accept-Language")
"""Says to caches that answers differ by it (X36)."""


class Gate(NamedTuple):
    """The parts that a request meets before its message is known."""

    endpoints: Mapping[str, Endpoint]
    paths: Mapping[str, str]
    """The endpoints' names by their paths."""
    allowed_hosts: AllowedHosts
    cors: Cors
    pages: tuple[Metadata | FrontPage, ...]
    """Serves the metadata and pages that everybody may read, outside of every endpoint."""
    sessions: SessionEndpoint
    bodies: RequestBodies


class RequestRouter:
    """Takes exchanges through the checks to the handlers of their methods."""

    def __init__(self, gate: Gate, callers: Callers, compat: Compat2025, methods: MethodTable, audit: Audit) -> None:
        self._gate = gate
        self._callers = callers
        self._compat = compat
        self._methods = methods
        self.audit = audit
        """Writes a line for each call."""

    async def receive(self, exchange: Exchange) -> bool:
        """Read a request, and check all that needs no caller.

        Returns:
            False where it is answered already: it was no request of a method.

        Raises:
            Rejection: the first check that fails.
            BudgetExhausted: the body found no room in memory.
            ClientGone: the client left before its request was whole.
        """
        gate = self._gate
        for page in gate.pages:
            if page.takes(exchange):
                await page.answer(exchange)
                return False
        exchange.extra = gate.cors.headers(exchange.headers)
        exchange.endpoint = check_place(exchange, gate.paths, gate.allowed_hosts)  # groups 2 and 3
        if gate.cors.is_preflight(exchange.http_method, exchange.headers):
            await exchange.answer(204, headers=gate.cors.preflight(exchange.headers))
            return False
        if self._callers.snapshots.has_several_languages(exchange.endpoint):
            exchange.extra.append(_BY_LANGUAGE)
        if gate.sessions.takes(exchange):
            exchange.credential = self._callers.admission.read(exchange.endpoint, exchange)
            await gate.sessions.serve(exchange)
            return False
        check_form(exchange)  # group 4
        exchange.credential = self._callers.admission.read(exchange.endpoint, exchange)  # group 4b
        body, message = await gate.bodies.read(exchange)  # groups 4c and 5
        exchange.error_id = None if is_response(message) else read_id(message)
        exchange.is_notification = is_notification(message)
        if self._compat.in_session(exchange) and (response := read_response(body, message)) is not None:
            exchange.error_id = None
            await gate.sessions.take_response(exchange, response)
            return False
        self.identify(exchange, body, message)
        if exchange.message.id is None:
            await self._take_notification(exchange)
            return False
        return True

    def identify(self, exchange: Exchange, body: bytes, message: Any) -> None:
        """Find out of a parsed body which request of which revision it is, and check what its message alone can tell.

        Raises:
            Rejection: the first check of groups 6 to 10 that fails.
        """
        exchange.message = read_message(body, message)  # group 6
        if exchange.message.id is None:
            if not self._compat.has_notification(exchange):
                check_notification(exchange.headers, exchange.message, self._compat.served(exchange.endpoint))
            return
        exchange.id = exchange.message.id
        self._compat.adapt(exchange)
        name, revision = exchange.message.method, exchange.revision
        endpoint = self._gate.endpoints[exchange.endpoint]
        exchange.read_preference(header_counts=endpoint.language_header or not revision.checks_first)
        exchange.method = self._methods.find(exchange.endpoint, name, revision.name)
        if revision.checks_first:
            served = self._compat.served(exchange.endpoint)
            check_newest(exchange, served, body_version_wins=endpoint.body_version_wins)  # groups 7 to 10

    async def answer(self, exchange: Exchange) -> str | None:
        """Admit the caller of a request, and have its handler answer.

        Returns:
            The error's type; None for a result.

        Raises:
            Rejection: the answer is an error, and nothing was sent yet.
            ClientGone: nobody can be answered, or `server/discover` cannot be answered truly (D15).
        """
        method, callers = exchange.method, self._callers
        if method is not None and not method.admits:
            return await self._answer_from_memory(exchange)
        exchange.caller = await callers.admission.admit(exchange.endpoint, exchange.credential)  # group 11
        if exchange.caller.group is not None:
            await callers.snapshots.prepare(exchange.endpoint, exchange.caller)
        exchange.see(callers.view(exchange))
        # 2025: the session comes first, and then whether the endpoint offers the method.
        handler = offered_handler(exchange) if exchange.revision.checks_first else self._compat.answer
        if method is not None and method.is_limited:
            await callers.limits.take_request(exchange.endpoint, exchange.caller)
        if method is None or method.audit is None:
            return await handler(exchange)  # finds the target, checks its scopes, and takes the other limits
        started, outcome, why = time.monotonic(), "cancelled", ""
        try:
            error = await handler(exchange)
            outcome = error or "ok"
        except Rejection as rejection:
            outcome, why = str(rejection.code or rejection.status), rejection.message
            raise
        finally:
            self.audit.note(exchange, outcome, time.monotonic() - started, why)
        return error

    async def _answer_from_memory(self, exchange: Exchange) -> str | None:
        """Answer a method that needs neither admission nor limits nor a bus (D15, M32)."""
        view = self._callers.snapshots.view(exchange.endpoint, ANONYMOUS, exchange.revision.name)
        if view is None:
            raise ClientGone
        exchange.caller, exchange.view = ANONYMOUS, view
        return await offered_handler(exchange)(exchange)

    async def _take_notification(self, exchange: Exchange) -> None:
        if self._compat.has_notification(exchange) and self._compat.in_session(exchange):
            await self._gate.sessions.notify(exchange)
            return
        caller = await self._callers.admission.admit(exchange.endpoint, exchange.credential)
        await self._callers.limits.take_request(exchange.endpoint, caller)
        await exchange.answer(202)
