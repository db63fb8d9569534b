"""Keeps the leases of the tasks that a worker holds, in batches; brings status messages there, and cancels back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.pool_tasks import MOST_HELD, MOST_UNHEARD, Extend, Extended, PoolTasksClient, TaskLease
from mcpfleet.worker.calls.table import Key
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holdings import Holding, Holdings, elapsed
from mcpfleet.worker.tasks.retry import pauses

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


class LeaseRenewal:
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
        """When the last batch was sent."""
        self._failed = 0.0
        """When the last one was sent that was not answered."""
        self._is_urgent = False
        self._news = anyio.Event()
        self._answered = anyio.Event()
        """Set when a batch is over."""

    async def confirm(self, holding: Holding) -> bool:
        """Ask whether a task is still ours, until there is an answer."""
        asked = elapsed()
        for pause in pauses():
            if holding.is_lost or self._held.get(holding.key) is not holding:
                return False
            if holding.extended >= asked:
                return True
            answered = self._answered
            self.extend_now()
            await answered.wait()
            if holding.extended < asked:
                await anyio.sleep(pause)
        raise AssertionError("there is always another pause")

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
        self._unheard[claim] = elapsed()
        self._news.set()

    async def run(self) -> None:
        """Extend until cancelled."""
        while True:
            with anyio.move_on_after(self._left()):
                await self._news.wait()
            self._news = anyio.Event()
            if self._left() <= 0:
                await anyio.sleep(max(0.0, self._asked + _APART - elapsed()))
                await self._extend()

    def _left(self) -> float:
        """Seconds until the next batch is due."""
        if not len(self._held) and not self._unheard:
            self._is_urgent = False
            return _IDLE
        if self._is_urgent:
            return 0.0
        # A lease runs from when it was asked for: what was taken just now is not due with what was renewed long ago.
        oldest = min((each.extended for each in self._held if each.is_renewed), default=self._asked)
        due = max(oldest, self._failed) + self._settings.task_extends
        if self._unheard:
            due = min(due, self._asked + self._settings.task_extends)
        if any(each.message is not None for each in self._held if each.is_renewed):
            due = min(due, self._asked + self._settings.task_says)
        return due - elapsed()

    async def _extend(self) -> None:
        self._asked, self._is_urgent = elapsed(), False
        self._unheard = {claim: at for claim, at in self._unheard.items() if self._asked - at < _UNHEARD_FOR}
        held = sorted((each for each in self._held if each.is_renewed), key=lambda each: each.extended)[:MOST_HELD]
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
            self._log.warning("leases of tasks were not renewed", tasks=len(held), error=str(error))
            self._failed = self._asked
            self._drop_old(held)
        else:
            self._note(held, messages, extended)
        answered, self._answered = self._answered, anyio.Event()
        answered.set()

    def _note(self, held: list[Holding], messages: Mapping[Key, str | None], extended: Extended) -> None:
        """Take what the service says; what was dropped meanwhile has had its own answer."""
        lost, ended, cancelled = frozenset(extended.lost), frozenset(extended.ended), frozenset(extended.cancelled)
        for each in held:
            if self._held.get(each.key) is not each or each.id in ended:
                continue
            if each.id in lost:
                each.is_refused = True
                if not each.is_deciding:
                    self._hear.lose(each, "its lease was not renewed")
                continue
            each.extended, each.lease = self._asked, extended.lease
            if each.message == messages[each.key]:
                each.message = each.progress = None
            if each.id in cancelled:
                self._hear.cancel(each)

    def _drop_old(self, held: list[Holding]) -> None:
        """Give up what could not be renewed for long, by when somebody else has it; an end is still worth a try."""
        for each in held:
            if self._asked - each.extended > self._settings.task_drops and not each.is_deciding:
                self._hear.lose(each, "its lease could not be renewed (MCPFLEET_TASK_DROPS)")
