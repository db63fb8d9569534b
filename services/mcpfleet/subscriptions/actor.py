"""The handlers of subscriptions: edges open and close streams, and begin, read, change and end sessions."""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.bus.errors import BusError, Failed, Fault
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
from mcpfleet.contracts.subscriptions import (
    CLOSE,
    LEASE,
    OPEN,
    CloseStreams,
    EdgeLeased,
    LeaseEdge,
    OpenStream,
    StreamOpened,
    StreamsClosed,
)
from mcpfleet.subscriptions.grants import GrantRepository
from mcpfleet.subscriptions.notifications import SessionNotifications
from mcpfleet.subscriptions.repository import StreamRepository
from mcpfleet.subscriptions.sessions import SessionRepository
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.sweeper import SubscriptionsSweeper
from mcpfleet.subscriptions.uri_hints import UriHints

GROUP: Final = "subscriptions"


class SubscriptionsActor:
    """Answers what edges ask when streams open and close."""

    def __init__(
        self,
        repository: StreamRepository,
        sweeper: SubscriptionsSweeper,
        settings: SubscriptionsSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._sweeper = sweeper
        self._settings = settings
        self._log = log

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(OPEN, self.open, group=GROUP)
        await actor.answer(CLOSE, self.close, group=GROUP)
        await actor.answer(LEASE, self.lease, group=GROUP)

    async def open(self, question: OpenStream, context: RpcContext) -> StreamOpened:  # noqa: ARG002
        """Count a stream in, where its partition has room."""
        limit, lost = self._settings.partition_streams, self._sweeper.lost
        granted = await self._repository.open(question.edge, question.sequence, question.count, limit=limit, lost=lost)
        if not granted:
            self._log.info("stream refused", endpoint=question.count.endpoint, limit=limit)
        return StreamOpened(granted=granted)

    async def close(self, question: CloseStreams, context: RpcContext) -> StreamsClosed:  # noqa: ARG002
        """Store how many streams an edge has now."""
        await self._repository.restate(question.edge, question.sequence, question.counts)
        return StreamsClosed(counts=len(question.counts))

    async def lease(self, question: LeaseEdge, context: RpcContext) -> EdgeLeased:  # noqa: ARG002
        """Note that an edge lives."""
        return EdgeLeased(wanted=not await self._repository.lease(question.edge))


class SessionsActor:
    """Answers what edges ask of sessions of 2025 clients (D11), and tells all edges when their copies are stale."""

    def __init__(
        self,
        sessions: SessionRepository,
        grants: GrantRepository,
        hints: UriHints,
        notifications: SessionNotifications,
        settings: SubscriptionsSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._sessions = sessions
        self._grants = grants
        self._hints = hints
        self._notifications = notifications
        self._settings = settings
        self._log = log

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(BEGIN, self.begin, group=GROUP)
        await actor.answer(READ, self.read, group=GROUP)
        await actor.answer(CHANGE, self.change, group=GROUP)
        await actor.answer(END, self.end, group=GROUP)

    async def begin(self, question: BeginSession, context: RpcContext) -> SessionBegun:  # noqa: ARG002
        """Store a session. If its owner has too many, the ones that were unused longest end."""
        is_new, ended = await self._sessions.begin(question)
        if ended:
            self._log.info("sessions evicted", ended=len(ended), limit=self._settings.owner_sessions)
            self._notifications.ended(ended, "surplus")
        if is_new:
            self._notifications.begun(question.session)
        return SessionBegun()

    async def read(self, question: ReadSession, context: RpcContext) -> SessionRead:  # noqa: ARG002
        """Return a session."""
        found = await self._sessions.read(question.session, question.owner)
        if question.holder is not None and found is not None and found.grants:
            await self._grants.saw(question.session, question.holder)
        return SessionRead(session=found)

    async def change(self, question: ChangeSession, context: RpcContext) -> SessionRead:  # noqa: ARG002
        """Change a session, and return it. Its URIs are heard from now on, if no stream hears them."""
        if question.subscribe is not None:
            try:
                await self._hints.begin()
            except BusError as error:
                raise Failed(Fault.UNAVAILABLE, "the hints of what changes cannot be heard now") from error
        done = await self._sessions.change(question)
        if done.is_full:
            self._log.info("session subscription refused", limit=self._settings.session_uris)
        if done.is_other:
            self._notifications.changed(question.session)
        return SessionRead(session=done.session, is_full=done.is_full)

    async def end(self, question: EndSession, context: RpcContext) -> SessionEnded:  # noqa: ARG002
        """End a session."""
        found = await self._sessions.end(question.session, question.owner)
        if found:
            self._notifications.deleted(question.session)
        return SessionEnded(found=found)
