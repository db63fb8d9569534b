"""Hints to edges about sessions, sent after the commit. Any of them may be lost."""

from __future__ import annotations

from collections.abc import Iterable

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.contracts.sessions import CHANGED_SUBJECT, SessionChanged


class SessionNotifications:
    """Tells every edge. An edge that misses a hint reads the session again after a while."""

    def __init__(self, bus: Bus, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._log = log

    def changed(self, session: str) -> None:
        """Hint that a session changed."""
        self._tell(SessionChanged(session=session))

    def ended(self, sessions: Iterable[str]) -> None:
        """Hint that sessions have ended by themselves."""
        for session in sessions:
            self._tell(SessionChanged(session=session, ended=True))

    def deleted(self, session: str) -> None:
        """Hint that a session's owner has ended it."""
        self._tell(SessionChanged(session=session, ended=True, deleted=True))

    def _tell(self, hint: SessionChanged) -> None:
        try:
            self._bus.publish(CHANGED_SUBJECT, hint.model_dump_json().encode())
        except NotRun as error:
            self._log.debug("hint not sent", error=str(error))
