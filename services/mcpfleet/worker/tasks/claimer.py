"""Looks for tasks that wait: at a signal, when a slot is free again, and by itself, since signals may be lost."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Final, Protocol

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, NotRun
from mcpfleet.contracts.pool_tasks import MOST_CLAIMED, Claimed, ClaimTasks, PoolTasksClient
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holdings import elapsed

_FIRST: Final = 0.125
"""The part of the longest pause that the first one after a find has."""


class Room(Protocol):
    """Says how many tasks may be claimed now."""

    def __call__(self, *, waits_alone: bool) -> int:
        """`waits_alone`: one waits for a worker that runs no other."""


def _nobody(_claim: str) -> None:
    pass


class Claimer:
    """Claims, one claim at a time."""

    def __init__(
        self,
        client: PoolTasksClient,
        process: str,
        settings: WorkerSettings,
        *,
        take: Callable[[Claimed, float, float], None],
        room: Room,
        held: Callable[[], int],
        log: FilteringBoundLogger,
    ) -> None:
        """Describe the looking.

        Args:
            client: the service's.
            process: this worker's id.
            settings: the longest pause.
            take: takes a task, when it was asked for (`elapsed`), and how many seconds its lease lasts.
            room: says how many to claim.
            held: counts those that are held.
            log: for what an operator should know.
        """
        self.definitions: tuple[str, ...] = ()
        """What this worker runs."""
        self.on_unheard: Callable[[str], None] = _nobody
        """Hears of claims whose answers did not come."""
        self._client = client
        self._process = process
        self._longest = settings.task_looks
        self._take = take
        self._room = room
        self._held = held
        self._log = log
        self._wanted = anyio.Event()
        self._pause = self._longest * _FIRST
        self._has_more = False
        self._waits_alone = False

    def look(self) -> None:
        """Look soon."""
        self._wanted.set()

    def freed(self) -> None:
        """Look soon, if there was more than there was room for."""
        if self._has_more or self._waits_alone:
            self._wanted.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            with anyio.move_on_after(self._pause * random.uniform(0.5, 1.0)):  # noqa: S311  # no secret
                await self._wanted.wait()
            self._wanted = anyio.Event()
            most = min(self._room(waits_alone=self._waits_alone), MOST_CLAIMED)
            if not self.definitions:
                self._pause = self._longest
            elif most == 0:
                self._has_more = True  # as far as is known
                self._pause = self._longest
            else:
                await self._claim(most)

    async def _claim(self, most: int) -> None:
        claim, asked = secrets.token_hex(16), elapsed()
        wanted = ClaimTasks(
            claim=claim, process=self._process, definitions=self.definitions, most=most, held=self._held()
        )
        try:
            claimed = await self._client.claim(wanted)
        except NotRun as error:
            self._log.debug("tasks were not claimed", error=str(error))
            self._slow_down()
            return
        except BusError as error:
            self._log.warning("a claim was not answered", error=str(error))
            self.on_unheard(claim)
            self._slow_down()
            return
        for task in claimed.tasks:
            self._take(task, asked, claimed.lease)
        self._has_more = len(claimed.tasks) >= most
        self._waits_alone = claimed.alone_waits
        if claimed.tasks:
            self._pause = self._longest * _FIRST
        else:
            self._slow_down()
        if self._has_more:
            self._wanted.set()

    def _slow_down(self) -> None:
        self._pause = min(2 * self._pause, self._longest)
