"""The requests of sessions that run at this edge: no two with one id, and ended where their client takes them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import CANCELLED_SUBJECT, CallCancelled
from mcpfleet.edge.calls.uses import progress_token
from mcpfleet.edge.http.client import Client
from mcpfleet.edge.protocol.request import Inquiry
from mcpfleet.edge.sessions.known import Named, Sessions
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import Rejection, duplicate_request

_TAKEN_BACK: Final = "cancelled"
_NO_SESSION: Final = 404

Answer = Callable[[Inquiry], Awaitable[str | None]]


class _Request(NamedTuple):
    owner: str
    client: Client
    scope: anyio.CancelScope


class Running:
    """Knows the open requests of each session. An id is compared at one edge: no other can ask all for every call."""

    def __init__(self, bus: Bus, sessions: Sessions, settings: EdgeSettings, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._sessions = sessions
        self._settings = settings
        self._log = log
        self._open: dict[str, dict[RequestId, _Request]] = {}
        self._tokens: Counter[tuple[str, RequestId]] = Counter()

    async def listen(self) -> None:
        """Hear from now on what clients take back, at whichever edge they say so."""
        await self._bus.subscribe(CANCELLED_SUBJECT, self._on_cancelled)
        self._sessions.on_change(lambda session, ended: self.end_all(session) if ended else None)

    async def check(self) -> None:
        """Look at each session now and then: it lives while a request of it runs, and hints of its end may be lost."""
        while True:
            sessions = list(self._open)
            pause = self._settings.session_checked / max(1, len(sessions))
            for session in sessions or [""]:
                await anyio.sleep(pause)
                if session in self._open:
                    await self._check_one(session)

    async def _check_one(self, session: str) -> None:
        request = next(iter(self._open[session].values()))
        try:
            await self._sessions.read(session, request.owner)
        except Rejection as rejection:
            if rejection.status == _NO_SESSION:
                self.end_all(session)

    async def answer(self, named: Named, inquiry: Inquiry, answer: Answer) -> str | None:
        """Answer a request of a session; returns the error's type, or None for a result.

        A client that takes it back gets no answer: a stream without events, or what there is of it (L7).

        Raises:
            Rejection: -32600 where a request with its id runs, and what the answering raises.
        """
        request, session = inquiry.request, named.key
        requests = self._open.setdefault(session, {})
        if request.id in requests:
            raise duplicate_request()
        token = progress_token(request.envelope.meta)
        with anyio.CancelScope() as scope:
            requests[request.id] = _Request(named.owner, request.client, scope)
            try:
                return await self._answer(session, inquiry, answer, token)
            finally:
                del requests[request.id]
                if not requests:
                    del self._open[session]
        await request.client.end_early()
        return _TAKEN_BACK

    async def _answer(self, session: str, inquiry: Inquiry, answer: Answer, token: RequestId | None) -> str | None:
        if token is None:
            return await answer(inquiry)
        key = session, token
        if self._tokens[key]:  # L15: a client could not tell whose progress it hears
            del inquiry.request.envelope.meta["progressToken"]
        self._tokens[key] += 1
        try:
            return await answer(inquiry)
        finally:
            self._tokens[key] -= 1
            if not self._tokens[key]:
                del self._tokens[key]

    def take_back(self, session: str, request: RequestId) -> None:
        """End a request at whichever edge it is; unknown ones and those that are being ended are left alone."""
        body = CallCancelled(session=session, request=request).model_dump_json().encode()
        if not self._end_one(session, request):
            try:
                self._bus.publish(CANCELLED_SUBJECT, body)
            except BusError as error:
                self._log.debug("cancel not sent", error=str(error))

    def end_all(self, session: str) -> None:
        """End what a session that is over still runs here."""
        for request in list(self._open.get(session, ())):
            self._end_one(session, request)

    def _on_cancelled(self, message: Incoming) -> None:
        try:
            cancelled = CallCancelled.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed cancel", subject=message.subject)
            return
        self._end_one(cancelled.session, cancelled.request)

    def _end_one(self, session: str, request: RequestId) -> bool:
        found = self._open.get(session, {}).get(request)
        if found is None:
            return False
        if not found.client.is_ending:
            found.client.is_unwanted = True
            found.scope.cancel()
        return True
