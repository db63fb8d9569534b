"""The loop of subscriptions: it deletes the rows of lost edges and old sessions, and knows when silence counts."""

from __future__ import annotations

import math
import time
from typing import Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus.bus import Bus
from mcpfleet.process.lifecycle import HeartbeatWindow
from mcpfleet.process.service import Process
from mcpfleet.store.errors import StoreError
from mcpfleet.store.readiness import StoreReadiness
from mcpfleet.subscriptions.grants import GrantRepository
from mcpfleet.subscriptions.notifications import SessionNotifications
from mcpfleet.subscriptions.places import PlaceRepository
from mcpfleet.subscriptions.repository import StreamRepository
from mcpfleet.subscriptions.sessions import AT_ONCE, SessionRepository
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.telemetry.instruments import SubscriptionsInstruments

_COUNTS_EVERY: Final = 15.0
"""Seconds between two counts of sessions."""
_BATCHES: Final = 10
"""Batches of sessions that one sweep deletes, so that it gets to the edges in time."""


class SubscriptionsSweeper:
    """Sweeps at intervals."""

    def __init__(  # noqa: PLR0917  # what it sweeps, and whom it tells
        self,
        repository: StreamRepository,
        sessions: SessionRepository,
        grants: GrantRepository,
        places: PlaceRepository,
        notifications: SessionNotifications,
        bus: Bus,
        process: Process[SubscriptionsSettings],
        *,
        instruments: SubscriptionsInstruments,
    ) -> None:
        self._repository = repository
        self._sessions = sessions
        self._grants = grants
        self._places = places
        self._notifications = notifications
        self._instruments = instruments
        self._counted = -math.inf
        self._bus = bus
        self._settings = settings = process.settings
        self._log = process.log
        self._window = HeartbeatWindow(longest_gap=settings.subscriptions_sweep + settings.edge_lost / 2)
        self._readiness = StoreReadiness(process.health, process.log)

    @property
    def lost(self) -> float | None:
        """Seconds of silence after which an edge counts no more; None while silence does not count."""
        watched = self._window.look(time.monotonic(), self._bus.proven_since)
        return self._settings.edge_lost if watched >= self._settings.edge_lost else None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Sweep until cancelled; it counts as started once the store answered, with tables that are new enough.

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
            if first:  # nothing is silent yet, and calls wait for a service that starts
                await self._repository.check()
                gone = []
            else:
                gone = await self._repository.sweep(lost=lost)
                self._notifications.all_changed(await self._grants.drop_streams(gone))
                await self._end_sessions()
                await self._places.sweep()
                await self._measure()
        except StoreError as error:
            self._window.interrupt()
            self._readiness.failed(error)
            return False
        self._readiness.answered()
        for edge in gone:
            self._log.info("silent edge dropped", edge=edge)
        return True

    async def _measure(self) -> None:
        """Count the sessions now and then: a count reads them all."""
        if time.monotonic() - self._counted >= _COUNTS_EVERY:
            self._counted = time.monotonic()
            self._instruments.sessions.set(await self._sessions.count())

    async def _end_sessions(self) -> None:
        for _ in range(_BATCHES):
            ended = await self._sessions.sweep()
            self._notifications.ended(ended, "idle")
            if len(ended) < AT_ONCE:
                return
