"""The way between two event loops on two threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import anyio
import anyio.to_thread

from mcpfleet.worker.loop_bridge import LoopBridge


class Arrivals:
    """Takes values on the loop, and lets a test wait for so many."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.threads: set[int] = set()
        self._news = anyio.Event()

    def take(self, value: Any) -> None:
        self.values.append(value)
        self.threads.add(threading.get_ident())
        self._news.set()

    async def count(self, wanted: int) -> None:
        with anyio.fail_after(5):
            while len(self.values) < wanted:
                self._news = anyio.Event()
                await self._news.wait()


async def test_values_arrive_in_their_order_on_the_loops_thread() -> None:
    arrivals = Arrivals()
    crossing = LoopBridge[int](asyncio.get_running_loop(), arrivals.take)

    def burst() -> None:
        for number in range(10_000):
            crossing.put(number)

    await anyio.to_thread.run_sync(burst)
    await arrivals.count(10_000)
    assert arrivals.values == list(range(10_000))
    assert arrivals.threads == {threading.get_ident()}


async def test_of_many_threads_each_keeps_its_order_and_nothing_is_lost() -> None:
    arrivals = Arrivals()
    crossing = LoopBridge[tuple[int, int]](asyncio.get_running_loop(), arrivals.take)

    def burst(thread: int) -> None:
        for number in range(2_000):
            crossing.put((thread, number))

    async with anyio.create_task_group() as tasks:
        for thread in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, burst, thread)
    await arrivals.count(8_000)
    for thread in range(4):
        assert [number for name, number in arrivals.values if name == thread] == list(range(2_000))


async def test_a_burst_wakes_the_loop_once() -> None:
    """A wake-up costs a system call: values that are there already need none of their own."""
    arrivals = Arrivals()
    crossing = LoopBridge[int](asyncio.get_running_loop(), arrivals.take)
    for number in range(100):
        crossing.put(number)
    await asyncio.sleep(0)
    assert arrivals.values == list(range(100))


async def test_a_value_that_is_put_while_another_is_taken_follows_it() -> None:
    arrivals = Arrivals()

    def take(value: int) -> None:
        arrivals.take(value)
        if value < 5:
            crossing.put(value + 1)

    crossing = LoopBridge[int](asyncio.get_running_loop(), take)
    crossing.put(1)
    await arrivals.count(5)
    assert arrivals.values == [1, 2, 3, 4, 5]


async def test_a_value_whose_taking_fails_holds_up_no_other() -> None:
    arrivals = Arrivals()
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))

    def take(value: int) -> None:
        if value == 1:
            raise ValueError("one")
        arrivals.take(value)

    crossing = LoopBridge[int](asyncio.get_running_loop(), take)
    for number in range(3):
        crossing.put(number)
    await arrivals.count(2)
    assert arrivals.values == [0, 2]
    assert told == ["one"]


class Value:
    """Something that can be watched until it is gone."""


def test_what_is_put_after_the_loop_was_closed_is_dropped() -> None:
    """Nobody is there any more; and nothing piles up."""
    loop = asyncio.new_event_loop()
    crossing = LoopBridge[Value](loop, lambda _: None)
    loop.close()
    watched = []
    for _ in range(3):
        value = Value()
        watched.append(weakref.ref(value))
        crossing.put(value)
        del value
    gc.collect()
    assert [reference() for reference in watched] == [None] * 3
