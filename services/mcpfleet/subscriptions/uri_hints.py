"""Hears which URIs change, for sessions that have no stream at any edge (X59)."""

from __future__ import annotations

import time
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.port import Incoming
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.store.errors import StoreError
from mcpfleet.subscriptions.grants import GrantRepository, Heard, HeardAt
from mcpfleet.subscriptions.notifications import SessionNotifications

_GROUP: Final = "subscriptions"
_SETTLES: Final = 0.02
"""Seconds in which hints are collected: equal ones are noted once."""
_MOST: Final = 10_000
"""Hints that wait to be noted. Beyond them every URI counts as changed."""
_LOOKED_EACH: Final = 5.0
"""Seconds between two looks whether there is any grant."""
_PATTERN: Final = "hint.resource.*.*.*"
_FLUSH_TIMEOUT: Final = 2.0


class UriHints:
    """Notes hints in the store. Replicas share them: one of them hears each.

    It hears none while no session subscribes to anything, so a fleet without such sessions pays nothing.
    """

    def __init__(
        self, bus: Bus, grants: GrantRepository, notifications: SessionNotifications, *, log: FilteringBoundLogger
    ) -> None:
        self._bus = bus
        self._notifications = notifications
        self._grants = grants
        self._log = log
        self._subscription: Subscription | None = None
        self._has_begun = AutoResetEvent()
        self._waiting: dict[Heard, HeardAt] = {}
        self._has_gap = False
        self._has_work = AutoResetEvent()
        self._turn = anyio.Lock()
        bus.on_link(self._on_link)

    async def begin(self) -> None:
        """Hear hints from now on, since there is a grant; raise `BusError` where that is not confirmed."""
        async with self._turn:
            if self._subscription is None:
                self._subscription = await self._bus.subscribe(_PATTERN, self._on_hint, _GROUP)
                self._has_begun.set()
                await self._bus.flush(timeout=_FLUSH_TIMEOUT)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Note what is heard, until cancelled."""
        task_status.started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look)
            while True:
                await self._has_work.wait()
                await anyio.sleep(_SETTLES)
                await self._note()

    async def _look(self) -> None:
        """Begin once there is a grant, which may have been made at another replica."""
        while self._subscription is None:
            try:
                if await self._grants.any():
                    await self.begin()
            except Exception as error:  # the store or the link is away: it is looked for again
                self._log.debug("grants not looked for", error=str(error))
            await self._has_begun.wait(_LOOKED_EACH)

    async def _note(self) -> None:
        waiting, self._waiting = self._waiting, {}
        has_gap, self._has_gap = self._has_gap, False
        try:
            if has_gap:
                await self._grants.note_gap()
            else:
                self._notifications.all_changed(await self._grants.note(waiting))
        except StoreError as error:
            self._log.debug("changes not noted", error=str(error))
            self._has_gap = True
            await anyio.sleep(1.0)
            self._has_work.set()

    def _on_hint(self, message: Incoming) -> None:
        _, _, endpoint, pool, key = message.subject.split(".")
        if len(self._waiting) >= _MOST:
            self._has_gap = True
        else:
            heard, present = Heard(endpoint, pool, key), time.monotonic()
            former = self._waiting.get(heard)
            self._waiting[heard] = HeardAt(present if former is None else former.first, present)
        self._has_work.set()

    def _on_link(self, is_up: bool) -> None:
        if not is_up and self._subscription is not None:
            self._has_gap = True
        elif is_up and self._has_gap:
            self._has_work.set()
