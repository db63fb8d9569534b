"""The deadline and the cancel of a call: what the handler hears, and when its slot is free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcpfleet.app import Context
from mcpfleet.contracts.call import NOT_BEGUN
from tests.unit.worker.bench import Bench, add, app_of, bench, held_call, text_of


async def forever(ctx: Context) -> None:
    await anyio.sleep_forever()


@pytest.mark.rule("M59")
async def test_a_handler_has_at_most_its_tools_time_and_the_model_reads_so() -> None:
    async with bench(app_of(forever, timeout=0.1)) as runs:
        result = await runs.call("forever")
    assert result["isError"] is True
    assert "0.1 s" in text_of(result)


async def test_a_handler_has_at_most_the_time_that_its_caller_waits() -> None:
    async with bench(app_of(forever, timeout=600)) as runs:
        began = time.monotonic()
        assert (await runs.call("forever", lasts=0.1))["isError"] is True
        assert time.monotonic() - began < 60


@pytest.mark.rule("P7")
async def test_the_deadline_fires_the_cancel_token() -> None:
    fired = threading.Event()

    async def wait(ctx: Context) -> None:
        ctx.cancelled.on_cancel(fired.set)
        await anyio.sleep_forever()

    async with bench(app_of(wait, timeout=0.1)) as runs:
        await runs.call("wait")
    assert fired.is_set()


async def test_a_timeout_of_the_handlers_own_is_an_exception_like_any_other() -> None:
    """An upstream was slow; the tool's time is not over, and nothing was cancelled."""
    contexts: list[Context] = []

    async def fetch(ctx: Context) -> None:
        contexts.append(ctx)
        raise TimeoutError("the upstream is slow")

    async with bench(app_of(fetch, timeout=60)) as runs:
        held = runs.start("fetch")
        body = (await runs.end(held)).body
    assert b"did not finish within 60 s" not in body
    assert held.trace.trace_id.encode() in body
    assert not contexts[0].cancelled


@pytest.mark.rule("P7")
async def test_a_normal_end_does_not_fire_the_cancel_token() -> None:
    contexts: list[Context] = []

    async def look(ctx: Context) -> None:
        contexts.append(ctx)

    async with bench(app_of(look)) as runs:
        await runs.call("look")
    assert not contexts[0].cancelled


async def cancelled(runs: Bench, tool: str, started: anyio.Event) -> Any:
    """Start a call, cancel it once its handler runs, and return it."""
    held = runs.start(tool)
    with anyio.fail_after(5):
        await started.wait()
    runs.runner.obey(held.key)
    return held


async def test_a_cancel_stops_an_async_handler_where_it_waits() -> None:
    started, cleaned = anyio.Event(), []

    async def wait() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    async with bench(app_of(wait)) as runs:
        await runs.end(await cancelled(runs, "wait", started))
        assert cleaned == [True]


@pytest.mark.rule("P8")
async def test_a_cancelled_call_ends_when_its_plain_handler_has_really_returned() -> None:
    started, go_on, returned = anyio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(5)
        returned.set()

    async with bench(app_of(work)) as runs:
        held = await cancelled(runs, "work", started)
        await anyio.wait_all_tasks_blocked()
        assert runs.ends(held) == []
        go_on.set()
        await runs.end(held)
        assert returned.is_set()


@pytest.mark.rule("P8")
async def test_a_cancelled_call_ends_when_its_callbacks_have_returned() -> None:
    started, go_on, returned = anyio.Event(), threading.Event(), threading.Event()

    def undo() -> None:
        go_on.wait(5)
        returned.set()

    async def wait(ctx: Context) -> None:
        ctx.cancelled.on_cancel(undo)
        started.set()
        await anyio.sleep_forever()

    async with bench(app_of(wait)) as runs:
        held = await cancelled(runs, "wait", started)
        await anyio.wait_all_tasks_blocked()
        assert runs.ends(held) == []
        go_on.set()
        await runs.end(held)
        assert returned.is_set()


async def test_a_plain_handler_looks_at_its_cancel_token() -> None:
    started = anyio.Event()
    loop = asyncio.get_running_loop()

    def work(ctx: Context) -> str:
        loop.call_soon_threadsafe(started.set)
        until = time.monotonic() + 5
        while not ctx.cancelled and time.monotonic() < until:
            time.sleep(0.001)
        return "left early"

    async with bench(app_of(work)) as runs:
        end = await runs.end(await cancelled(runs, "work", started))
        assert b"left early" in end.body or not end.body


@pytest.mark.rule("K28")
@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_call_that_is_cancelled_before_it_began_does_not_run(is_plain: bool) -> None:
    """The order and its cancel come in one burst: both are obeyed before the call's task has begun."""
    began: list[str] = []

    async def reserve() -> None:
        began.append("async")

    def plain_reserve() -> None:
        began.append("plain")

    async with bench(app_of(plain_reserve if is_plain else reserve, add)) as runs:
        held = runs.start("plain_reserve" if is_plain else "reserve")
        runs.runner.obey(held.key)
        assert (await runs.end(held)).body == b""
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3
    assert began == []


@pytest.mark.rule("D19")
async def test_a_call_whose_time_was_over_before_it_began_says_so_in_its_line() -> None:
    async with bench(app_of(add)) as runs:
        late = await runs.end(runs.start("add", {"left": 1, "right": 2}, lasts=-1.0))
    assert b"has not run" in late.body
    assert late.header == NOT_BEGUN


@pytest.mark.rule("P8")
@pytest.mark.parametrize("way", ["step", "plain step", "ask"])
async def test_what_a_cancelled_thread_wants_of_the_loop_later_does_not_begin(way: str) -> None:
    """The cancel was delivered while the thread computed: what it asks for later is refused."""
    started, go_on, told = anyio.Event(), threading.Event(), list[type[BaseException]]()
    loop = asyncio.get_running_loop()
    done: list[int] = []

    async def effect() -> int:
        done.append(1)
        await anyio.lowlevel.checkpoint()
        return 1

    def plain_effect() -> int:
        done.append(1)
        return 1

    def work(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(5)
        try:
            if way == "ask":
                ctx.sync.roots()
            else:
                ctx.sync.step("effect", effect if way == "step" else plain_effect)
        except BaseException as error:
            told.append(type(error))
            raise

    async with bench(app_of(work, asks={"roots"})) as runs:
        held = await cancelled(runs, "work", started)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
        await runs.end(held)
    assert told == [asyncio.CancelledError]
    assert done == []


async def test_a_cancel_of_a_call_that_has_ended_is_harmless() -> None:
    async with bench(app_of(add)) as runs:
        held = runs.start("add", {"left": 1, "right": 2})
        await runs.end(held)
        runs.runner.obey(held.key)
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3
        assert len(runs.ends(held)) == 1


async def test_a_cancel_stops_its_own_call_alone() -> None:
    started, release = anyio.Event(), anyio.Event()

    async def wait(mark: bool = False) -> str:
        if mark:
            started.set()
        await release.wait()
        return "done"

    async with bench(app_of(wait)) as runs:
        other = runs.start("wait")
        held = runs.start("wait", {"mark": True})
        await started.wait()
        runs.runner.obey(held.key)
        await runs.end(held)
        assert runs.ends(other) == []
        release.set()
        assert b"done" in (await runs.end(other)).body


async def test_an_order_that_comes_when_the_runner_has_ended_is_dropped() -> None:
    """The two loops end one after the other: an order that crosses late finds nobody."""
    app = app_of(add)
    async with bench(app) as runs:
        await runs.call("add", {"left": 1, "right": 2})
    late = held_call(app, "add", {"left": 1, "right": 2})
    runs.runner.obey(late)
    runs.runner.obey(late.key)
    await anyio.lowlevel.checkpoint()
    assert runs.ends(late) == []


async def raises_after_its_cancel() -> None:
    try:
        await anyio.sleep(60)
    finally:
        raise ConnectionError("the driver was interrupted")


def plain_that_raises_after_its_cancel(ctx: Context) -> None:
    while not ctx.cancelled:
        time.sleep(0.01)
    raise ConnectionError("the driver was interrupted")


@pytest.mark.parametrize("handler", [raises_after_its_cancel, plain_that_raises_after_its_cancel])
async def test_an_error_after_a_cancel_ends_no_other_call(handler: Callable[..., object]) -> None:
    """Clean-up that fails ends its own call alone, whether the client left or the time was over."""

    async def other() -> str:
        await anyio.sleep(0.3)
        return "unharmed"

    async with bench(app_of(handler, other)) as runs:
        beside = runs.start("other")
        cancelled = runs.start(handler.__name__)
        overdue = runs.start(handler.__name__, lasts=0.1)
        await anyio.sleep(0.05)
        runs.runner.obey(cancelled.key)
        await runs.end(cancelled)
        assert b"did not finish" in (await runs.end(overdue)).body
        assert b"unharmed" in (await runs.end(beside)).body
