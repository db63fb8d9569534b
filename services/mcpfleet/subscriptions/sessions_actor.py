"""The handlers of sessions: what edges ask in the requests of clients of the revisions of 2025 (D11)."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import Actor, Asked
from mcpfleet.contracts.sessions import (
    BEGIN,
    CHANGE,
    END,
    READ,
    BeginSession,
    ChangeSession,
    EndSession,
    ReadSession,
    SessionBegun,
    SessionEnded,
    SessionRead,
)
from mcpfleet.subscriptions.actor import GROUP
from mcpfleet.subscriptions.notifications import Signals
from mcpfleet.subscriptions.sessions import Sessions
from mcpfleet.subscriptions.settings import SubscriptionsSettings


class SessionsActor:
    """Answers for sessions, and tells all edges what they know is old."""

    def __init__(
        self, sessions: Sessions, signals: Signals, settings: SubscriptionsSettings, *, log: FilteringBoundLogger
    ) -> None:
        self._sessions = sessions
        self._signals = signals
        self._settings = settings
        self._log = log

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(BEGIN, self.begin, group=GROUP)
        await actor.answer(READ, self.read, group=GROUP)
        await actor.answer(CHANGE, self.change, group=GROUP)
        await actor.answer(END, self.end, group=GROUP)

    async def begin(self, question: BeginSession, asked: Asked) -> SessionBegun:  # noqa: ARG002
        """Write a session down; over the most that its owner may have, those end that were used longest ago."""
        ended = await self._sessions.begin(question)
        if ended:
            self._log.info("too many sessions of one caller", ended=len(ended), limit=self._settings.owner_sessions)
            self._signals.ended(ended)
        return SessionBegun()

    async def read(self, question: ReadSession, asked: Asked) -> SessionRead:  # noqa: ARG002
        """Say what a session is."""
        return SessionRead(session=await self._sessions.read(question.session, question.owner))

    async def change(self, question: ChangeSession, asked: Asked) -> SessionRead:  # noqa: ARG002
        """Change a session, and say what it is now."""
        done = await self._sessions.change(question)
        if done.is_full:
            self._log.info("no room for a URI of a session", limit=self._settings.session_uris)
        if done.is_other:
            self._signals.changed(question.session)
        return SessionRead(session=done.session, is_full=done.is_full)

    async def end(self, question: EndSession, asked: Asked) -> SessionEnded:  # noqa: ARG002
        """End a session."""
        found = await self._sessions.end(question.session, question.owner)
        if found:
            self._signals.deleted(question.session)
        return SessionEnded(found=found)
