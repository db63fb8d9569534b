"""The order of readings: bounded for each pool and each caller, and whoever waits comes before renewals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcpfleet.edge.streams.read_queue import AT_ONCE, OF_A_CALLER, RENEWING, ReadQueue
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")


class Readings:
    """Performs until the test ends each."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ends: dict[str, anyio.Event] = {}
        self.queue: ReadQueue[str] = ReadQueue(self._perform)

    async def _perform(self, item: str) -> None:
        self.began.append(item)
        self.ends[item] = anyio.Event()
        await self.ends[item].wait()

    def add(self, count: int, caller: str, pool: str = "library", *, renews: bool = False) -> None:
        """Add so many of a caller."""
        for number in range(count):
            self.queue.add(f"{caller}{number}", pool, caller, renews=renews)

    async def end(self, item: str) -> None:
        """Let one end."""
        await until(lambda: item in self.ends)
        self.ends[item].set()

    async def running(self, count: int) -> list[str]:
        """Wait until so many have begun."""
        await until(lambda: len(self.began) >= count)
        return self.began


@asynccontextmanager
async def readings() -> AsyncIterator[Readings]:
    made = Readings()
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.queue.run)
        yield made
        tasks.cancel_scope.cancel()


@pytest.mark.rule("S22")
async def test_a_caller_leaves_places_of_a_pool_to_others() -> None:
    async with readings() as made:
        made.add(100, "a")
        made.add(3, "b")
        assert await made.running(OF_A_CALLER + 3) == [f"a{number}" for number in range(OF_A_CALLER)] + [
            "b0", "b1", "b2"
        ]  # fmt: skip
        assert len(made.queue) == 100 - OF_A_CALLER


@pytest.mark.rule("S22")
async def test_a_pool_has_its_bound_and_holds_up_no_other() -> None:
    async with readings() as made:
        for caller in "abcd":
            made.add(8, caller)
        made.add(1, "z", "other")
        await made.running(AT_ONCE + 1)
        assert "z0" in made.began
        assert len(made.queue) == 32 - AT_ONCE


@pytest.mark.rule("S22")
async def test_callers_take_turns() -> None:
    async with readings() as made:
        made.add(OF_A_CALLER, "x")
        made.add(OF_A_CALLER, "y")
        await made.running(AT_ONCE)
        made.add(2, "a")
        made.add(2, "b")
        for number in range(4):
            await made.end(f"x{number}")
            await made.running(AT_ONCE + number + 1)
        assert made.began[AT_ONCE:] == ["a0", "b0", "a1", "b1"]


@pytest.mark.rule("S22")
async def test_renewals_leave_places_and_one_that_is_waited_for_comes_first() -> None:
    async with readings() as made:
        for number in range(RENEWING + 4):
            made.queue.add(f"r{number}", "library", f"caller{number}", renews=True)
        await made.running(RENEWING)
        assert len(made.began) == RENEWING
        last = RENEWING + 3
        made.queue.hasten(f"r{last}", "library", f"caller{last}")
        assert (await made.running(RENEWING + 1))[-1] == f"r{last}"
        made.queue.hasten("r0", "library", "caller0")
        assert len(made.queue) == 3, "one that is under way is not performed twice"


async def test_what_waits_can_be_taken_back() -> None:
    async with readings() as made:
        made.add(OF_A_CALLER + 2, "a")
        await made.running(OF_A_CALLER)
        assert made.queue.cancel(f"a{OF_A_CALLER}", "library", "a")
        assert not made.queue.cancel("a0", "library", "a"), "it is under way"
        assert not made.queue.cancel("a0", "other", "a")
        await made.end("a0")
        assert (await made.running(OF_A_CALLER + 1))[-1] == f"a{OF_A_CALLER + 1}"
        assert len(made.queue) == 0
