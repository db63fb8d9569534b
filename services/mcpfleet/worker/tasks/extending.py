"""Keeps the leases of the tasks that a worker holds, in batches; brings status messages there, and cancels back."""

from __future__ import annotations

import time
from typing import Final, Protocol

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.pool_tasks import MOST_HELD, MOST_UNHEARD, Extend, Extended, Held, PoolTasksClient
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holding import Holding, Holdings

_APART: Final = 0.05
"""Seconds between two batches, at least: nudges come in bursts."""
_IDLE: Final = 60.0
_UNHEARD_FOR: Final = 30.0
"""Seconds for which a claim whose answer did not come is named, since it may still be on its way."""


class Hear(Protocol):
    """Hears what becomes of holdings."""

    def lose(self, holding: Holding, why: str) -> None:
        """It is no longer ours."""

    def cancel(self, holding: Holding) -> None:
        """Its client wants it to end."""


class Extending:
    """Renews leases."""

    def __init__(
        self,
        client: PoolTasksClient,
        process: str,
        held: Holdings,
        settings: WorkerSettings,
        *,
        hear: Hear,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._process = process
        self._held = held
        self._settings = settings
        self._hear = hear
        self._log = log
        self._unheard: dict[str, float] = {}
        self._asked = 0.0
        """When the last batch was sent (monotonic)."""
        self._failed = 0.0
        """When the last one was sent that was not answered."""
        self._is_urgent = False
        self._news = anyio.Event()

    def extend_now(self) -> None:
        """Ask at once: something is to be heard."""
        self._is_urgent = True
        self._news.set()

    def say(self) -> None:
        """Have it noticed that there is a new status message, or a new holding."""
        self._news.set()

    def note_unheard(self, claim: str) -> None:
        """Name a claim whose answer did not come, so that what it took is given back."""
        if len(self._unheard) >= MOST_UNHEARD:
            del self._unheard[next(iter(self._unheard))]
        self._unheard[claim] = time.monotonic()
        self._news.set()

    async def run(self) -> None:
        """Extend until cancelled."""
        while True:
            with anyio.move_on_after(self._left()):
                await self._news.wait()
            self._news = anyio.Event()
            if self._left() <= 0:
                await anyio.sleep(max(0.0, self._asked + _APART - time.monotonic()))
                await self._extend()

    def _left(self) -> float:
        """Seconds until the next batch is due."""
        if not len(self._held) and not self._unheard:
            self._is_urgent = False
            return _IDLE
        if self._is_urgent:
            return 0.0
        # A lease runs from when it was asked for: what was taken just now is not due with what was renewed long ago.
        oldest = min((each.extended for each in self._held if not each.is_lost), default=self._asked)
        due = max(oldest, self._failed) + self._settings.task_extends
        if self._unheard:
            due = min(due, self._asked + self._settings.task_extends)
        if any(each.message is not None for each in self._held):
            due = min(due, self._asked + self._settings.task_says)
        return due - time.monotonic()

    async def _extend(self) -> None:
        self._asked, self._is_urgent = time.monotonic(), False
        self._unheard = {claim: at for claim, at in self._unheard.items() if self._asked - at < _UNHEARD_FOR}
        mine = (each for each in self._held if not each.is_lost)
        held = sorted(mine, key=lambda each: each.extended)[:MOST_HELD]
        messages = {each.key: each.message for each in held}
        wanted = Extend(
            process=self._process,
            tasks=tuple(Held(id=each.id, fence=each.fence, message=each.message) for each in held),
            unheard=tuple(self._unheard),
        )
        try:
            extended = await self._client.extend(wanted)
        except BusError as error:
            self._log.warning("leases of tasks were not renewed", tasks=len(held), error=str(error))
            self._failed = self._asked
            self._drop_old(held)
            return
        for each in held:
            each.extended = self._asked
            if each.message == messages[each.key]:
                each.message = None
        self._tell(held, extended)

    def _tell(self, held: list[Holding], extended: Extended) -> None:
        lost, cancelled = frozenset(extended.lost), frozenset(extended.cancelled)
        for each in held:
            if each.id in lost:
                self._hear.lose(each, "its lease was not renewed")
            elif each.id in cancelled:
                self._hear.cancel(each)

    def _drop_old(self, held: list[Holding]) -> None:
        """Give up what could not be renewed for long: by then somebody else has it."""
        for each in held:
            if self._asked - each.extended > self._settings.task_drops:
                self._hear.lose(each, "its lease could not be renewed (MCPFLEET_TASK_DROPS)")
