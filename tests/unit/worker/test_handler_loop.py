"""The handlers' thread: a loop of its own, and the watch over what blocks it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import LogCapture

from mcpfleet.app import App
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.worker.handler_loop import HandlerLoop
from mcpfleet.worker.runner import HandlerTable, Runner, RunTelemetry
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.work import Ended, Frame
from tests.kit.logs import captured
from tests.kit.observing import observers
from tests.kit.waiting import until
from tests.unit.worker.bench import held_call

started, release = threading.Event(), threading.Event()
app = App("test", version="1")


@app.tool()
async def where() -> int:
    return threading.get_ident()


@app.tool()
async def block_the_loop() -> str:
    started.set()
    release.wait(60)
    return "done"


@app.tool()
async def sort_badly() -> str:
    sorted([1, 2], key=lambda _: release.wait(60))
    return "done"


class Frames:
    """Collects the frames that come out of the thread."""

    def __init__(self) -> None:
        self.ends: list[Ended] = []

    def hear(self, frame: Frame) -> None:
        if isinstance(frame, Ended):
            self.ends.append(frame)

    async def results(self, count: int) -> list[Any]:
        await until(lambda: len(self.ends) >= count, within=5)
        return [json.loads(end.body) for end in self.ends]


def runner_of(frames: Frames, log: LogCapture) -> Runner:
    started.clear()
    release.clear()
    telemetry = RunTelemetry(Tracer(), WorkerInstruments(Metrics()), captured(log), observers())
    return Runner(HandlerTable(app), WorkerSettings(), telemetry, tell=frames.hear)


@asynccontextmanager
async def handler_thread(frames: Frames, log: LogCapture) -> AsyncIterator[HandlerLoop]:
    thread = HandlerLoop()
    async with anyio.create_task_group() as tasks:
        await tasks.start(thread.run, runner_of(frames, log))
        try:
            yield thread
        finally:
            release.set()
            tasks.cancel_scope.cancel()


async def test_handlers_run_on_another_thread_than_the_bus() -> None:
    frames = Frames()
    async with handler_thread(frames, LogCapture()) as thread:
        thread.order(held_call(app, "where"))
        [result] = await frames.results(1)
    assert result["structuredContent"] != threading.get_ident()


async def test_orders_are_obeyed_in_their_order() -> None:
    """A cancel that follows its call finds it."""
    frames = Frames()
    async with handler_thread(frames, LogCapture()) as thread:
        calls = [held_call(app, "where") for _ in range(100)]
        for call in calls:
            thread.order(call)
        await frames.results(100)
    assert [end.key for end in frames.ends] == [call.key for call in calls]


async def test_a_handler_that_blocks_its_loop_leaves_ours_free() -> None:
    frames = Frames()
    async with handler_thread(frames, LogCapture()) as thread:
        thread.order(held_call(app, "block_the_loop"))
        await until(started.is_set, within=5)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert frames.ends == []
        release.set()
        assert len(await frames.results(1)) == 1


class Told:
    """Collects the calls of the watch."""

    def __init__(self) -> None:
        self.blocked: list[bool] = []

    async def __call__(self, is_blocked: bool) -> None:
        self.blocked.append(is_blocked)


@pytest.mark.parametrize("tool", ["block_the_loop", "sort_badly"])
async def test_the_watch_names_the_function_that_blocks_the_loop(tool: str) -> None:
    log = LogCapture()
    async with handler_thread(Frames(), log) as thread, anyio.create_task_group() as tasks:
        tasks.start_soon(thread.watch, 0.1, captured(log), Told())
        thread.order(held_call(app, tool))
        await until(lambda: log.entries, within=5)
        [line] = log.entries
        tasks.cancel_scope.cancel()
    assert line["event"] == "handlers' loop blocked"
    assert line["file"].startswith(__file__)
    assert tool in line["stack"]
    assert line["function"] in (tool, "<lambda>")


async def test_the_watch_tells_of_one_block_once_and_of_the_next_again() -> None:
    log = LogCapture()
    frames = Frames()
    told = Told()

    def seen(times: int) -> bool:
        return len(log.entries) >= times

    async with handler_thread(frames, log) as thread, anyio.create_task_group() as tasks:
        tasks.start_soon(thread.watch, 0.1, captured(log), told)
        for times in (1, 2):
            release.clear()
            thread.order(held_call(app, "block_the_loop"))
            await until(partial(seen, times), within=5)
            await anyio.sleep(0.25)  # two more looks, with nothing new
            assert len(log.entries) == times
            release.set()
            await frames.results(times)
            await until(lambda: told.blocked[-1] is False, within=5)
        tasks.cancel_scope.cancel()
    assert told.blocked == [True, False, True, False]


async def test_a_process_that_stood_still_blames_no_handler() -> None:
    """The watch itself is late then, as after a SIGSTOP; the handlers' loop runs."""
    log, told = LogCapture(), Told()
    async with handler_thread(Frames(), log) as thread, anyio.create_task_group() as tasks:
        tasks.start_soon(thread.watch, 0.1, captured(log), told)
        for _ in range(3):
            await anyio.sleep(0.02)
            time.sleep(0.4)  # noqa: ASYNC251  # it stands for the stop
        await anyio.sleep(0.3)
        tasks.cancel_scope.cancel()
    assert told.blocked == []
    assert log.entries == []


async def test_a_thread_that_a_handler_blocks_does_not_hold_up_the_end() -> None:
    """It gets two seconds; after that it ends with the process."""
    frames = Frames()
    async with anyio.create_task_group() as tasks:
        thread = HandlerLoop()
        await tasks.start(thread.run, runner_of(frames, LogCapture()))
        thread.order(held_call(app, "block_the_loop"))
        await until(started.is_set, within=5)
        began = time.monotonic()
        tasks.cancel_scope.cancel()
    took = time.monotonic() - began
    release.set()
    assert took < 30
