"""Workers that have nothing else to do, and claim what is made: how fast, and at what price while nothing is."""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass

import anyio
import structlog
from anyio.abc import TaskGroup

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.contracts.pool_tasks import Claimed, ClaimTasks, PoolTasksClient, Settle, TasksClaimed, work_subject
from mcpfleet.contracts.tasks import NewTask, Status, TasksClient
from mcpfleet.process.service import Process
from mcpfleet.testing.fleet import Fleet
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.claimer import Claimer
from tests.fleet.tasking import OWNER, REPORT

MAKERS = 16
IDLE = 3.0
"""Seconds without work."""
END = '{"_meta":{},"resultType":"complete","content":[]}'


@dataclass(frozen=True)
class Claiming:
    """The outcome."""

    workers: int
    rate: float
    """Tasks claimed a second."""
    asked: float
    """Claims a second, while tasks are made."""
    idle: float
    """Claims a second, while none are."""
    middle: float
    """Milliseconds from a task's creation to its claim."""
    late: float
    """Milliseconds that 99 in 100 claims keep."""


class Counting(PoolTasksClient):
    """Counts claims."""

    asked = 0

    async def claim(self, wanted: ClaimTasks) -> TasksClaimed:
        """Claim."""
        Counting.asked += 1
        return await super().claim(wanted)


class Waiting:
    """A worker that waits for tasks, and ends each at once."""

    def __init__(self, bus: Bus, pool: str, made: dict[str, float], took: list[float], tasks: TaskGroup) -> None:
        self._bus, self._pool, self._tasks, self._made, self._took = bus, pool, tasks, made, took
        self._client = Counting(bus, pool)
        self._held = 0
        settings = WorkerSettings()
        self._most = settings.task_slots
        self.claimer = Claimer(self._client, bus.process, settings, self, structlog.get_logger())
        self.claimer.definitions = (REPORT,)

    async def run(self) -> None:
        """Wait for tasks."""
        await self._bus.subscribe(work_subject(self._pool), lambda _: self.claimer.look(), "workers")
        await self.claimer.run()

    def count_claimable(self, *, waits_alone: bool) -> int:
        """How many more it can hold."""
        return self._most - self._held

    def count_held(self) -> int:
        """How many it holds."""
        return self._held

    def take(self, claimed: Claimed, asked: float, lease: float) -> None:
        """Begin to end a task."""
        if claimed.id in self._made:
            self._took.append((time.monotonic() - self._made.pop(claimed.id)) * 1e3)
        self._held += 1
        self._tasks.start_soon(self._end, claimed)

    def note_unheard(self, claim: str) -> None:
        """Leave an unanswered claim to its lease."""

    async def _end(self, task: Claimed) -> None:
        await self._client.settle(Settle(id=task.id, fence=task.fence, status=Status.COMPLETED, end=END))
        self._held -= 1
        self.claimer.slot_freed()


async def connect(tasks: TaskGroup, fleet: Fleet, user: str) -> Bus:
    """Connect as one of the fleet's users."""
    bus = bus_of(Process("bench", fleet.nats_settings(user)), user)
    await tasks.start(bus.run)
    await bus.wait_up()
    return bus


async def make(bus: Bus, pool: str, made: dict[str, float], until: float) -> None:
    """Make tasks, one after the other."""
    client = TasksClient(bus)
    while time.monotonic() < until:
        task = NewTask(
            id=secrets.token_urlsafe(24), binding=OWNER, pool=pool, definition=REPORT, name="report", origin="{}"
        )
        made[task.id] = time.monotonic()
        await client.create(task)


async def claiming(fleet: Fleet, workers: int, seconds: float) -> Claiming:
    """Have so many workers wait for tasks, without any for a while, and with."""
    took: list[float] = []
    made: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        edge = await connect(tasks, fleet, "edge")
        for _ in range(workers):
            bus = await connect(tasks, fleet, pool_user(fleet.pool))
            tasks.start_soon(Waiting(bus, fleet.pool, made, took, tasks).run)
        await anyio.sleep(IDLE / 2)
        before = Counting.asked
        await anyio.sleep(IDLE)
        idle = (Counting.asked - before) / IDLE
        before, began = Counting.asked, time.monotonic()
        async with anyio.create_task_group() as makers:
            for _ in range(MAKERS):
                makers.start_soon(make, edge, fleet.pool, made, began + seconds)
        while made:  # noqa: ASYNC110  # each claim takes one out
            await anyio.sleep(0.01)
        elapsed = time.monotonic() - began
        asked = Counting.asked - before
        tasks.cancel_scope.cancel()
    late = sorted(took)[int(len(took) * 0.99)]
    return Claiming(workers, len(took) / elapsed, asked / elapsed, idle, statistics.median(took), late)
