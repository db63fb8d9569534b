"""Claims tasks that wait: at a signal, when a slot is free again, and by itself, since signals may be lost."""

from __future__ import annotations

import random
import secrets
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, NotRun
from mcpfleet.contracts.pool_tasks import MOST_CLAIMED, Claimed, ClaimTasks, PoolTasksClient
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.retry import pauses
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holdings import elapsed

_FIRST: Final = 0.125
"""The first pause after a find, as a part of the longest pause."""


class Taker(Protocol):
    """Takes claimed tasks."""

    def count_claimable(self, *, waits_alone: bool) -> int:
        """How many tasks may be claimed now; `waits_alone` if one waits for a worker that runs no other."""

    def count_held(self) -> int:
        """How many tasks are held."""

    def take(self, claimed: Claimed, asked: float, lease: float) -> None:
        """Run a task that was asked for at a time (`elapsed`), and whose lease lasts so many seconds from then on."""

    def note_unheard(self, claim: str) -> None:
        """Note a claim whose answer did not come."""


class Claimer:
    """Makes one claim at a time."""

    def __init__(
        self, client: PoolTasksClient, process: str, settings: WorkerSettings, taker: Taker, log: FilteringBoundLogger
    ) -> None:
        """Claim nothing yet.

        Args:
            client: the tasks service's.
            process: this worker's name on the bus.
            settings: the longest pause.
            taker: takes what is claimed.
            log: for what an operator should know.
        """
        self.definitions: tuple[str, ...] = ()
        """The definitions whose tasks this worker runs."""
        self._client = client
        self._process = process
        self._longest = settings.task_looks
        self._taker = taker
        self._log = log
        self._wanted = AutoResetEvent()
        self._grow_from(self._longest * _FIRST)
        self._has_more = False
        self._waits_alone = False

    def look(self) -> None:
        """Claim soon."""
        self._wanted.set()

    def slot_freed(self) -> None:
        """Claim soon, if more tasks waited than there was room for."""
        if self._has_more or self._waits_alone:
            self._wanted.set()

    def emptied(self) -> None:
        """Claim soon, if a task waits for a worker that holds no other."""
        if self._waits_alone:
            self._wanted.set()

    async def run(self) -> None:
        """Claim until cancelled."""
        while True:
            await self._wanted.wait(self._pause * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            most = min(self._taker.count_claimable(waits_alone=self._waits_alone), MOST_CLAIMED)
            if self.definitions and most:
                await self._claim(most)
                continue
            self._has_more = self._has_more or bool(self.definitions)  # as far as is known
            self._grow_from(self._longest)

    async def _claim(self, most: int) -> None:
        claim, asked = secrets.token_hex(16), elapsed()
        wanted = ClaimTasks(
            claim=claim, process=self._process, definitions=self.definitions, most=most, held=self._taker.count_held()
        )
        try:
            claimed = await self._client.claim(wanted)
        except NotRun as error:
            self._log.debug("claim not sent", error=str(error))
            self._pause = next(self._growing)
            return
        except BusError as error:
            self._log.warning("claim not answered", error=str(error))
            self._taker.note_unheard(claim)
            self._pause = next(self._growing)
            return
        for task in claimed.tasks:
            self._taker.take(task, asked, claimed.lease)
        self._has_more = len(claimed.tasks) >= most
        self._waits_alone = claimed.alone_waits
        if claimed.tasks:
            self._grow_from(self._longest * _FIRST)
        else:
            self._pause = next(self._growing)
        if self._has_more:
            self._wanted.set()

    def _grow_from(self, first: float) -> None:
        """Pause for so many seconds, and longer after each claim that finds nothing."""
        self._growing = pauses(first, self._longest)
        self._pause = next(self._growing)
