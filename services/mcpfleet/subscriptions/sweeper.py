"""The one loop of subscriptions: it deletes what is left of edges and sessions, and knows when silence counts."""

from __future__ import annotations

import time
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.process.lifecycle import Health, HeartbeatWindow
from mcpfleet.store.errors import StoreError
from mcpfleet.store.readiness import StoreReadiness
from mcpfleet.subscriptions.notifications import SessionNotifications
from mcpfleet.subscriptions.repository import StreamRepository
from mcpfleet.subscriptions.sessions import AT_ONCE, SessionRepository
from mcpfleet.subscriptions.settings import SubscriptionsSettings

_BATCHES: Final = 10
"""Of sessions, in one look: however many are over at once, edges are looked at in time."""


class SubscriptionsSweeper:
    """Looks at intervals."""

    def __init__(
        self,
        repository: StreamRepository,
        sessions: SessionRepository,
        notifications: SessionNotifications,
        bus: Bus,
        settings: SubscriptionsSettings,
        *,
        health: Health,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._sessions = sessions
        self._notifications = notifications
        self._bus = bus
        self._settings = settings
        self._log = log
        self._vigil = HeartbeatWindow(longest_gap=settings.subscriptions_sweep + settings.edge_lost / 2)
        self._readiness = StoreReadiness(health, log)

    @property
    def lost(self) -> float | None:
        """After how many seconds of silence an edge counts no more; none where silence does not count now."""
        watched = self._vigil.look(time.monotonic(), self._bus.proven_since)
        return self._settings.edge_lost if watched >= self._settings.edge_lost else None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look until cancelled; started once the store answered, with tables that are new enough.

        Raises:
            ConfigurationError: the tables are older than this release.
        """
        has_looked = False
        while True:
            if await self._look(first=not has_looked) and not has_looked:
                has_looked = True
                task_status.started()
            await anyio.sleep(self._settings.subscriptions_sweep)

    async def _look(self, *, first: bool) -> bool:
        lost = self.lost
        try:
            if first:
                await self._repository.check()
            gone = await self._repository.sweep(lost=lost)
            await self._end_sessions()
        except StoreError as error:
            self._vigil.interrupt()
            self._readiness.failed(error)
            return False
        self._readiness.answered()
        for edge in gone:
            self._log.info("streams of an edge count no more", edge=edge)
        return True

    async def _end_sessions(self) -> None:
        for _ in range(_BATCHES):
            ended = await self._sessions.sweep()
            self._notifications.ended(ended)
            if len(ended) < AT_ONCE:
                return
