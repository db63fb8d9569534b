"""Tells of sessions after the commit: edges by hints, of which any may be lost, and observers by events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.contracts.sessions import CHANGED_SUBJECT, SessionChanged
from mcpfleet.process.events import ClientSessionBegan, ClientSessionEnded
from mcpfleet.process.observers import Observers
from mcpfleet.telemetry.instruments import SubscriptionsInstruments


class SessionNotifications:
    """Tells every edge. An edge that misses a hint reads the session again after a while."""

    def __init__(
        self, bus: Bus, observers: Observers, instruments: SubscriptionsInstruments, *, log: FilteringBoundLogger
    ) -> None:
        self._bus = bus
        self._observers = observers
        self._instruments = instruments
        self._log = log

    def begun(self, session: str) -> None:
        """Tell observers that a session has begun; edges hear of it by their own requests."""
        self._instruments.begun.add(1)
        if self._observers.is_on:
            self._observers.tell(ClientSessionBegan, session)

    def changed(self, session: str) -> None:
        """Hint that a session changed."""
        self._tell(SessionChanged(session=session))

    def all_changed(self, sessions: Iterable[str]) -> None:
        """Hint that sessions changed."""
        for session in sessions:
            self.changed(session)

    def ended(self, sessions: Iterable[str], why: Literal["surplus", "idle", "retired"]) -> None:
        """Hint that sessions have ended by themselves."""
        for session in sessions:
            self._tell(SessionChanged(session=session, ended=True))
            self._note_end(session, why)

    def deleted(self, session: str) -> None:
        """Hint that a session's owner has ended it."""
        self._tell(SessionChanged(session=session, ended=True, deleted=True))
        self._note_end(session, "client")

    def _note_end(self, session: str, why: Literal["client", "surplus", "idle", "retired"]) -> None:
        self._instruments.ended.add(1, why)
        if self._observers.is_on:
            self._observers.tell(ClientSessionEnded, session, why)

    def _tell(self, hint: SessionChanged) -> None:
        try:
            self._bus.publish(CHANGED_SUBJECT, hint.model_dump_json().encode())
        except NotRun as error:
            self._log.debug("hint not sent", error=str(error))
