"""The memory budget for large bodies, shared by all clients of an edge."""

from __future__ import annotations

import time

import anyio
import pytest

from mcpfleet.edge.transport.memory_budget import BudgetExhausted, MemoryBudget
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")


class Tenant:
    """Somebody who takes room in a task of its own, and keeps it until told."""

    def __init__(self, room: MemoryBudget, size: int, *, within: float = 5.0) -> None:
        self._room = room
        self._size = size
        self._within = within
        self.has_it = False
        self.go = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            async with self._room.hold(self._size, within=self._within):
                self.has_it = True
                await self.go.wait()


async def test_room_is_taken_for_the_length_of_a_block() -> None:
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    async with room.hold(4, within=5), room.hold(6, within=5):
        assert room.used == 10
    assert room.used == 0


async def test_room_is_given_back_when_the_block_fails() -> None:
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    with pytest.raises(ZeroDivisionError):
        async with room.hold(4, within=5):
            raise ZeroDivisionError
    assert room.used == 0


async def test_what_is_larger_than_all_the_room_takes_all_of_it() -> None:
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    async with room.hold(1000, within=5):
        assert room.used == 10
    assert room.used == 0


async def test_whoever_waits_too_long_is_told_the_setting() -> None:
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    async with room.hold(10, within=5):
        began = time.monotonic()
        with pytest.raises(BudgetExhausted, match="MCPFLEET_RESULT_ROOM"):
            async with room.hold(1, within=0.1):
                pass
        assert 0.1 <= time.monotonic() - began < 2
    assert room.used == 0


async def test_those_who_wait_are_served_in_their_order() -> None:
    """A small body does not overtake a large one for ever."""
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    first, large, small = Tenant(room, 8), Tenant(room, 9), Tenant(room, 1)
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
    assert room.used == 0


@pytest.mark.parametrize("when", ["waiting", "given in the same moment", "holding"])
async def test_whoever_leaves_takes_no_room_along(when: str) -> None:
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    holder, leaver, last = Tenant(room, 10), Tenant(room, 10), Tenant(room, 10)
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
    assert room.used == 0


async def test_one_who_gives_up_lets_those_behind_it_have_what_is_free() -> None:
    room = MemoryBudget(10, "MCPFLEET_RESULT_ROOM")
    holder, large, small = Tenant(room, 5), Tenant(room, 9, within=0.1), Tenant(room, 5)
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
    assert room.used == 0
