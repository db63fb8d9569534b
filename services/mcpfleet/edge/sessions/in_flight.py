"""The requests of sessions that run at this edge: their ids are unique, and a client may cancel them."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import CANCELLED_SUBJECT, CallCancelled, SessionChanged
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import NotAnswered, UnknownSession, duplicate_request, session_over

_CANCELLED: Final = "cancelled"
"""The error's type of a cancelled request."""
_REMEMBERED: Final = 2.0
"""Seconds by which a cancellation may arrive before its request."""
_MOST_REMEMBERED: Final = 1_000
"""Cancellations without a request that are kept."""
_LONGEST_ID: Final = 1_024
"""Characters of an id that is sent to other edges or remembered, at most."""


@dataclass(slots=True, eq=False)
class SessionRequest:
    """A request of a session that is being answered."""

    owner: str
    exchange: Exchange
    scope: anyio.CancelScope
    is_cancelled: bool = False
    """Its cancellation came before it did."""
    is_over: bool = False
    """Its session has ended without being deleted."""

    async def end(self) -> str:
        """End a cancelled request: its stream ends, with the events that were sent so far (L7).

        Returns:
            The error's type.

        Raises:
            Rejection: -32603 where its session has ended (L8).
        """
        if self.is_over:
            raise session_over()
        await self.exchange.end_early()
        return _CANCELLED


class InFlightRequests:
    """Knows the open requests of each session. Ids are compared within one edge: asking all edges costs too much."""

    def __init__(self, bus: Bus, sessions: SessionCache, settings: EdgeSettings, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._sessions = sessions
        self._settings = settings
        self._log = log
        self._open: dict[str, dict[RequestId, SessionRequest]] = {}
        self._cancelled: OrderedDict[tuple[str, RequestId], float] = OrderedDict()
        """Recent cancellations of requests that are not here, and when they came."""
        self._tokens: Counter[tuple[str, RequestId]] = Counter()
        """Progress tokens in use, by sessions."""

    async def listen(self) -> None:
        """Receive cancellations that clients sent to other edges, from now on."""
        await self._bus.subscribe(CANCELLED_SUBJECT, self._on_cancelled)
        self._sessions.on_change(self._on_change)

    async def check(self) -> None:
        """Check each session from time to time: a request keeps its session alive, and hints of its end may be lost."""
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
        except UnknownSession:
            self.end_all(session, deleted=False)
        except NotAnswered:
            return  # the next check asks again

    @contextmanager
    def open(self, exchange: Exchange, ref: SessionRef) -> Iterator[SessionRequest]:
        """Have a request of a session open while a block answers it.

        The block is left early where the client cancels the request, or its session ends.

        Raises:
            Rejection: -32600 where a request with its id runs.
        """
        requests = self._open.setdefault(ref.key, {})
        if exchange.id in requests:
            raise duplicate_request()
        with anyio.CancelScope() as scope:
            own = requests[exchange.id] = SessionRequest(ref.owner, exchange, scope)
            own.is_cancelled = self._was_cancelled(ref.key, exchange.id)
            try:
                with self._own_token(exchange, ref.key):
                    yield own
            finally:
                del requests[exchange.id]
                if not requests:
                    del self._open[ref.key]

    @contextmanager
    def _own_token(self, exchange: Exchange, session: str) -> Iterator[None]:
        """Take a progress token away that another request of the session has (L15).

        A client could not tell whose progress it receives.
        """
        token = exchange.progress_token
        if token is None:
            yield
            return
        key = session, token
        if self._tokens[key]:
            del exchange.message.meta["progressToken"]
        self._tokens[key] += 1
        try:
            yield
        finally:
            self._tokens[key] -= 1
            if not self._tokens[key]:
                del self._tokens[key]

    def cancel(self, session: str, request: RequestId) -> None:
        """Cancel a request, at any edge; an unknown request, or one that is being answered, is left alone."""
        if not self._end_one(session, request) and len(str(request)) <= _LONGEST_ID:
            body = CallCancelled(session=session, request=request).model_dump_json().encode()
            try:
                self._bus.publish(CANCELLED_SUBJECT, body)
            except BusError as error:
                self._log.debug("cancel not sent", error=str(error))

    def end_all(self, session: str, *, deleted: bool) -> None:
        """End the requests of an ended session. Where the client has deleted it, they get no answer (L8)."""
        for request in self._open.get(session, {}).values():
            self._end(request, is_over=not deleted)

    def _on_change(self, changed: SessionChanged) -> None:
        if changed.ended:
            self.end_all(changed.session, deleted=changed.deleted)

    def _on_cancelled(self, message: Incoming) -> None:
        try:
            cancelled = CallCancelled.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed cancel", subject=message.subject)
            return
        self._end_one(cancelled.session, cancelled.request)

    def _end_one(self, session: str, request: RequestId) -> bool:
        running = self._open.get(session, {}).get(request)
        if running is None:
            self._remember(session, request)
            return False
        self._end(running)
        return True

    @staticmethod
    def _end(request: SessionRequest, *, is_over: bool = False) -> None:
        if not request.exchange.is_ending:
            request.is_over = is_over
            request.exchange.is_unwanted = True
            request.scope.cancel()

    def _remember(self, session: str, request: RequestId) -> None:
        """Keep a cancellation without a request for a moment: it may have overtaken the request."""
        now = time.monotonic()
        if len(str(request)) <= _LONGEST_ID:
            self._cancelled[session, request] = now
            self._cancelled.move_to_end((session, request))
        while self._cancelled:
            oldest = next(iter(self._cancelled))
            if len(self._cancelled) <= _MOST_REMEMBERED and now - self._cancelled[oldest] < _REMEMBERED:
                break
            del self._cancelled[oldest]

    def _was_cancelled(self, session: str, request: RequestId) -> bool:
        if not self._cancelled:
            return False
        since = self._cancelled.pop((session, request), None)
        return since is not None and time.monotonic() - since < _REMEMBERED
