"""Renews the leases of held tasks, in batches. Each batch brings status messages there, and cancels back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.pool_tasks import MOST_HELD, MOST_UNHEARD, Extend, Extended, PoolTasksClient, TaskLease
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holdings import Holding, Holdings, elapsed
from mcpfleet.worker.tasks.service_retry import retry_pauses
from mcpfleet.worker.work import TaskKey

_APART: Final = 0.05
"""Seconds between two batches, at least: notifications come in bursts."""
_IDLE: Final = 60.0
"""Seconds between two looks while nothing is held."""
_UNHEARD_FOR: Final = 30.0
"""Seconds for which an unanswered claim is named, since it may still be on its way."""


class LeaseRenewal:
    """Renews the leases of all that is held."""

    def __init__(
        self, client: PoolTasksClient, process: str, holdings: Holdings, settings: WorkerSettings,
        log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        """Renew nothing yet.

        Args:
            client: the tasks service's.
            process: this worker's name on the bus.
            holdings: whose leases are renewed.
            settings: the intervals.
            log: for what an operator should know.
        """
        self.holdings = holdings
        self._client = client
        self._process = process
        self._settings = settings
        self._log = log
        self._unheard: dict[str, float] = {}
        self._asked = 0.0
        """When the last batch was sent."""
        self._failed = 0.0
        """When the last batch was sent that was not answered."""
        self._wakes_at = 0.0
        """When `run` looks again by itself."""
        self._is_urgent = False
        self._news = AutoResetEvent()
        self._answered = anyio.Event()
        """Set when a batch is over."""

    def hold(self, holding: Holding) -> None:
        """Hold a task, and renew its lease from now on."""
        self.holdings.add(holding)
        if holding.extended + self._settings.task_extends < self._wakes_at:
            self._news.set()

    async def confirm(self, holding: Holding) -> bool:
        """Ask whether a task is still held, until there is an answer."""
        asked, pauses = elapsed(), retry_pauses()
        while not holding.is_lost and self.holdings.get(holding.key) is holding:
            if holding.extended >= asked:
                return True
            answered = self._answered
            self.renew_now()
            await answered.wait()
            if holding.extended < asked:
                await anyio.sleep(next(pauses))
        return False

    def renew_now(self) -> None:
        """Renew at once: the service has something to tell."""
        self._is_urgent = True
        self._news.set()

    def notify(self) -> None:
        """Look at what is due: there is a new status message."""
        self._news.set()

    def note_unheard(self, claim: str) -> None:
        """Name an unanswered claim in the next batches, so that what it took is given back."""
        if len(self._unheard) >= MOST_UNHEARD:
            del self._unheard[next(iter(self._unheard))]
        self._unheard[claim] = elapsed()
        self._news.set()

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            left = self._left()
            self._wakes_at = elapsed() + left
            await self._news.wait(left)
            if self._left() <= 0:
                await anyio.sleep(max(0.0, self._asked + _APART - elapsed()))
                await self._renew()

    def _left(self) -> float:
        """Seconds until the next batch is due."""
        if not len(self.holdings) and not self._unheard:
            self._is_urgent = False
            return _IDLE
        if self._is_urgent:
            return 0.0
        # A lease counts from its own request: a new holding is not due together with an old one.
        renewed = [each for each in self.holdings if each.is_renewed]
        oldest = min((each.extended for each in renewed), default=self._asked)
        due = max(oldest, self._failed) + self._settings.task_extends
        if self._unheard:
            due = min(due, self._asked + self._settings.task_extends)
        if any(each.message is not None for each in renewed):
            due = min(due, self._asked + self._settings.task_says)
        return due - elapsed()

    async def _renew(self) -> None:
        self._asked, self._is_urgent = elapsed(), False
        self._unheard = {claim: at for claim, at in self._unheard.items() if self._asked - at < _UNHEARD_FOR}
        held = sorted((each for each in self.holdings if each.is_renewed), key=lambda each: each.extended)[:MOST_HELD]
        messages = {each.key: each.message for each in held}
        wanted = Extend(
            process=self._process,
            tasks=tuple(
                TaskLease(id=each.id, fence=each.fence, message=each.message, progress=each.progress) for each in held
            ),
            unheard=tuple(self._unheard),
        )
        try:
            extended = await self._client.extend(wanted)
        except BusError as error:
            self._log.warning("leases not renewed", tasks=len(held), error=str(error))
            self._failed = self._asked
            self._drop_old(held)
        else:
            self._note(held, messages, extended)
        answered, self._answered = self._answered, anyio.Event()
        answered.set()

    def _note(self, held: list[Holding], messages: Mapping[TaskKey, str | None], extended: Extended) -> None:
        """Take the service's answer. A task that was dropped meanwhile had its own answer."""
        lost, ended, cancelled = frozenset(extended.lost), frozenset(extended.ended), frozenset(extended.cancelled)
        for each in held:
            if self.holdings.get(each.key) is not each or each.id in ended:
                continue
            if each.id in lost:
                each.is_refused = True
                if not each.is_deciding:
                    self.holdings.lose(each, "its lease was not renewed")
                continue
            each.extended, each.lease = self._asked, extended.lease
            if each.message == messages[each.key]:
                each.message = each.progress = None
            if each.id in cancelled:
                self.holdings.cancel(each)

    def _drop_old(self, held: list[Holding]) -> None:
        """Give up tasks that could not be renewed for so long that others have them; an end is still worth a try."""
        for each in held:
            if self._asked - each.extended > self._settings.task_drops and not each.is_deciding:
                self.holdings.lose(each, "its lease could not be renewed (MCPFLEET_TASK_DROPS)")
