"""The loop of the tasks service: it notes that holders can be heard, and ends what is over."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus.bus import Bus
from mcpfleet.process.service import Process
from mcpfleet.store.errors import StoreError
from mcpfleet.store.readiness import StoreReadiness
from mcpfleet.tasks.notifications import TaskNotifications
from mcpfleet.tasks.repository import TaskRepository
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.telemetry.instruments import TasksInstruments

_RARELY: Final = 10
"""Sweeps for each one that also deletes and counts."""


class TaskSweeper:
    """Sweeps at intervals. Every replica has a sweeper; they skip each other's rows."""

    def __init__(
        self,
        repository: TaskRepository,
        bus: Bus,
        process: Process[TasksSettings],
        notifications: TaskNotifications,
        instruments: TasksInstruments,
    ) -> None:
        self._repository = repository
        self._bus = bus
        self._settings = process.settings
        self._notifications = notifications
        self._instruments = instruments
        self._log = process.log
        self._readiness = StoreReadiness(process.health, process.log)
        self._number = 0

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Sweep until cancelled; it counts as started once the store answered, with tables that are new enough.

        Raises:
            ConfigurationError: the tables are older than this release.
        """
        while not await self._try(self._repository.open):
            await self._pause()
        task_status.started()
        while True:
            await self._pause()  # also at first: a service that starts has calls waiting for it
            await self._try(self._sweep)

    async def _pause(self) -> None:
        # Random pauses move replicas apart, so that one of them writes for all.
        await anyio.sleep(self._settings.tasks_sweep * random.uniform(0.8, 1.0))  # noqa: S311  # no secret

    async def _sweep(self) -> None:
        if self._bus.proven_since is not None:
            await self._repository.grace.prove()
        sweeps = self._repository.sweeps
        lapsed = await sweeps.lapse()
        if lapsed:
            self._log.warning("leases lapsed", tasks=len(lapsed))
            self._instruments.lapsed.add(len(lapsed))
        self._notifications.tell(lapsed)
        self._notifications.tell(await sweeps.end_overdue())
        self._number += 1
        if self._number % _RARELY == 1:
            self._notifications.tell(await self._repository.tool_reports.end_removed())
            await self._repository.tool_reports.forget()
            await sweeps.forget()
            await sweeps.forget_reservations()
            for state, count in (await sweeps.count()).items():
                self._instruments.tasks.set(count, state)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Work on the store; false where it does not answer."""
        try:
            await work()
        except StoreError as error:
            self._readiness.failed(error)
            return False
        self._readiness.answered()
        return True
