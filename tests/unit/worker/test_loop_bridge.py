"""The ways between two event loops on two threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.worker.loop_bridge import LoopBridge, LoopCalls


class Arrivals:
    """Takes values on the loop; a test waits for a number of them."""

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


async def test_each_of_many_threads_keeps_its_order_and_nothing_is_lost() -> None:
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
    """A wake-up costs a system call, so values that are there already share one."""
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


def test_a_value_for_a_closed_loop_is_dropped() -> None:
    """Nobody takes it any more, and nothing piles up."""
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


# -- functions that another loop awaits -------------------------------------------------------------------------------


@asynccontextmanager
async def calls_here() -> AsyncIterator[LoopCalls]:
    """This loop, as functions on it are called from others."""
    owner = TaskOwner()
    async with anyio.create_task_group() as tasks:
        await tasks.start(owner.run)
        yield LoopCalls(asyncio.get_running_loop(), owner)
        tasks.cancel_scope.cancel()


def on_another_loop(calls: LoopCalls, function: Any) -> Any:
    """Await a function from a loop of this thread's own."""
    return asyncio.run(calls.run(function))


async def test_a_function_runs_on_its_loop_and_its_result_comes_back() -> None:
    async def thread() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    async with calls_here() as calls:
        assert await anyio.to_thread.run_sync(on_another_loop, calls, thread) == threading.get_ident()


async def test_an_error_of_a_function_is_raised_where_it_is_awaited() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async with calls_here() as calls:
        with pytest.raises(ValueError, match="broken"):
            await anyio.to_thread.run_sync(on_another_loop, calls, fail)


async def test_a_function_goes_on_when_its_caller_is_cancelled() -> None:
    """A step that has run must be remembered, whoever cancels its handler."""
    began, release, ended = threading.Event(), anyio.Event(), anyio.Event()

    async def work() -> None:
        began.set()
        await release.wait()
        ended.set()

    async def cancelled(calls: LoopCalls) -> None:
        task = asyncio.ensure_future(calls.run(work))
        await asyncio.to_thread(began.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async with calls_here() as calls:
        await anyio.to_thread.run_sync(lambda: asyncio.run(cancelled(calls)))
        release.set()
        with anyio.fail_after(5):
            await ended.wait()


async def test_a_function_that_its_owner_ends_says_that_the_worker_ends() -> None:
    began = anyio.Event()
    told: list[BaseException] = []

    async def work() -> None:
        began.set()
        await anyio.sleep(60)

    def call(calls: LoopCalls) -> None:
        with pytest.raises(ConnectionAbortedError) as raised:
            on_another_loop(calls, work)
        told.append(raised.value)

    async with anyio.create_task_group() as tasks, calls_here() as calls:
        tasks.start_soon(anyio.to_thread.run_sync, call, calls)
        await began.wait()
    assert len(told) == 1


async def test_a_call_of_a_loop_whose_owner_has_ended_is_cancelled() -> None:
    async with calls_here() as calls:
        pass
    with pytest.raises(asyncio.CancelledError):
        await calls.run(anyio.lowlevel.checkpoint)
