"""Workers that settle, release, ask, fall silent and come back, by chance, over three replicas, on both databases."""

from __future__ import annotations

import random

import anyio
import pytest

from mcpfleet.contracts.pool_tasks import Claimed
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from mcpfleet.tasks.tables import states, watch
from tests.contract.store.task_harness import TaskHarness, age, replicas

TASKS = 60


class Chance:
    """The events of tasks, and the answers about them."""

    def __init__(self, harnesses: list[TaskHarness], seed: int) -> None:
        self.harnesses = harnesses
        self.random = random.Random(seed)
        self.accepted: dict[str, set[str]] = {}
        """The ends that were acknowledged, by task."""
        self.ghosts: list[Claimed] = []
        """Tasks whose workers fell silent, and may come back."""

    @property
    def harness(self) -> TaskHarness:
        return self.random.choice(self.harnesses)

    async def work(self, process: str) -> None:
        """Take tasks and treat them by chance, until none has come for a while."""
        empty = 0
        while empty < 10:
            taken = (await self.harness.claim(most=5, process=process)).tasks
            empty = 0 if taken else empty + 1
            for task in taken:
                await self.treat(task)
            if not taken:
                await self.answer_and_lapse()

    async def treat(self, task: Claimed) -> None:
        match self.random.randrange(6):
            case 0:
                await self.harness.release(task)
            case 1:
                self.ghosts.append(task)
            case 2 if not task.answers:
                await self.harness.ask(task, "month", keep=self.random.random() < 0.3)
            case _:
                await self.settle(task)
        if self.ghosts and self.random.random() < 0.2:
            await self.settle(self.ghosts.pop(0))

    async def settle(self, task: Claimed) -> None:
        end = f'{{"fence":{task.fence}}}'
        if await self.harness.settle(task, Status.COMPLETED, end):
            self.accepted.setdefault(task.id, set()).add(end)

    async def answer_and_lapse(self) -> None:
        """Answer what waits, and let the silent be noticed."""
        async with self.harness.store.read() as connection:
            waiting = list(
                await connection.scalars(states.select().with_only_columns(states.c.id).where(states.c.questions > 0))
            )
        for task in waiting:
            await self.harness.update(task, {"month": "1"})
        harness = self.harness
        await age(harness.store, states, "lease_until", harness.settings.task_lease + 1)
        await age(harness.store, states, "ready_at", 100)
        # As a replica does all along: on a busy machine a run takes longer than silence may.
        await harness.repository.grace.prove()
        await age(harness.store, watch, "grace_until", harness.settings.task_lease + 1)
        await harness.repository.sweeps.lapse()


@pytest.mark.parametrize("seed", [1, 2])
async def test_each_task_ends_once_with_the_end_that_was_acknowledged(url: str, store: Store, seed: int) -> None:
    async with replicas(url, 3) as harnesses:
        made = [(await harnesses[0].made(attempts=100)).id for _ in range(TASKS)]
        chance = Chance(harnesses, seed)
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(chance.work, f"w{number}")
        ends: dict[str, str] = {}
        for task in made:
            view = await harnesses[0].seen(task)
            assert view.status.is_end, "nothing is left behind"
            if view.status is Status.COMPLETED:
                assert chance.accepted[task] == {view.end}, "one end was acknowledged, and it is the task's"
            else:
                assert task not in chance.accepted
            ends[task] = str(view.end)
        for ghost in chance.ghosts:
            await chance.settle(ghost)
        assert {task: str((await harnesses[1].seen(task)).end) for task in made} == ends
