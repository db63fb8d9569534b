"""The memory budget for large bodies, shared by all clients of an edge."""

from __future__ import annotations

import time

import anyio
import pytest

from mcpfleet.edge.transport.memory_budget import BudgetExhausted, MemoryBudget
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")


class Tenant:
    """Takes memory in a task of its own, and keeps it until `go` is set."""

    def __init__(self, budget: MemoryBudget, size: int, *, within: float = 5.0) -> None:
        self._budget = budget
        self._size = size
        self._within = within
        self.has_it = False
        self.go = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            async with self._budget.hold(self._size, within=self._within):
                self.has_it = True
                await self.go.wait()


async def test_memory_is_taken_for_the_length_of_a_block() -> None:
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    async with budget.hold(4, within=5), budget.hold(6, within=5):
        assert budget.used == 10
    assert budget.used == 0


async def test_memory_is_given_back_when_the_block_fails() -> None:
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    with pytest.raises(ZeroDivisionError):
        async with budget.hold(4, within=5):
            raise ZeroDivisionError
    assert budget.used == 0


async def test_a_body_larger_than_the_budget_takes_all_of_it() -> None:
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    async with budget.hold(1000, within=5):
        assert budget.used == 10
    assert budget.used == 0


async def test_whoever_waits_too_long_is_told_the_setting() -> None:
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    async with budget.hold(10, within=5):
        began = time.monotonic()
        with pytest.raises(BudgetExhausted, match="MCPFLEET_RESULT_ROOM"):
            async with budget.hold(1, within=0.1):
                pass
        assert 0.1 <= time.monotonic() - began < 5
    assert budget.used == 0


async def test_those_who_wait_are_served_in_their_order() -> None:
    """A small body does not overtake a large one for ever."""
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    first, large, small = Tenant(budget, 8), Tenant(budget, 9), Tenant(budget, 1)
    async with anyio.create_task_group() as tasks:
        for tenant in (first, large, small):
            tasks.start_soon(tenant.run)
            await anyio.wait_all_tasks_blocked()
        assert [tenant.has_it for tenant in (first, large, small)] == [True, False, False]
        first.go.set()
        await anyio.wait_all_tasks_blocked()
        assert [tenant.has_it for tenant in (large, small)] == [True, True]
        large.go.set()
        small.go.set()
    assert budget.used == 0


@pytest.mark.parametrize("when", ["waiting", "given in the same moment", "holding"])
async def test_a_waiter_that_leaves_keeps_no_memory(when: str) -> None:
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    holder, leaver, last = Tenant(budget, 10), Tenant(budget, 10), Tenant(budget, 10)
    async with anyio.create_task_group() as tasks:
        for tenant in (holder, leaver, last):
            tasks.start_soon(tenant.run)
            await anyio.wait_all_tasks_blocked()
        if when == "waiting":
            leaver.scope.cancel()
            await anyio.wait_all_tasks_blocked()
            holder.go.set()
        elif when == "holding":
            holder.go.set()
            await anyio.wait_all_tasks_blocked()
            leaver.scope.cancel()
        else:
            holder.go.set()
            leaver.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert last.has_it
        last.go.set()
    assert budget.used == 0


async def test_one_who_gives_up_lets_those_behind_it_have_what_is_free() -> None:
    budget = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    holder, large, small = Tenant(budget, 5), Tenant(budget, 9, within=0.1), Tenant(budget, 5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(holder.run)
        await anyio.wait_all_tasks_blocked()

        async def give_up() -> None:
            with pytest.raises(BudgetExhausted):
                await large.run()

        tasks.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(small.run)
        await until(lambda: small.has_it, within=5)
        holder.go.set()
        small.go.set()
    assert budget.used == 0
