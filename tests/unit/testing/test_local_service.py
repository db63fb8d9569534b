"""One service of a local fleet: how it becomes ready, and the ways in which it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.testing.environment import LogLines
from mcpfleet.testing.service import LocalService, Serve


def part(serve: Serve[ProcessSettings]) -> LocalService[ProcessSettings]:
    lines = LogLines()
    log, keep = lines.logger("info"), lines.keep_composed
    return LocalService("tested", "edge", ProcessSettings(), serve, switch=None, log=log, write_composed=keep)


@asynccontextmanager
async def running(serve: Serve[ProcessSettings]) -> AsyncIterator[LocalService[ProcessSettings]]:
    made = part(serve)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        with anyio.fail_after(2):
            await made.wait_ready()
        yield made
        await made.kill()


async def until_stopped(process: Process[ProcessSettings], bus: Bus) -> None:
    process.health.set("tested", ok=True)
    await process.stopping.wait()


async def test_it_is_ready_when_its_health_is_good() -> None:
    async with running(until_stopped) as made:
        assert made.is_running


async def test_it_stops_when_it_is_told_to() -> None:
    async with running(until_stopped) as made:
        await made.stop()
        assert not made.is_running
        assert made.error is None


async def test_what_is_killed_does_not_drain() -> None:
    drained: list[bool] = []

    async def serve(process: Process[ProcessSettings], bus: Bus) -> None:
        await until_stopped(process, bus)
        drained.append(True)

    async with running(serve) as made:
        await made.kill()
        assert not made.is_running
    assert drained == []


async def test_an_error_ends_it_alone_and_is_kept() -> None:
    async def serve(process: Process[ProcessSettings], bus: Bus) -> None:
        raise ValueError("why")

    async with running(serve) as made:
        assert not made.is_running
        assert str(made.error) == "why"


async def test_who_waits_in_vain_is_told_what_for() -> None:
    async def serve(process: Process[ProcessSettings], bus: Bus) -> None:
        process.health.set("catalog", ok=False, why="it does not answer")
        process.health.set("nats", ok=True)
        await process.stopping.wait()

    made = part(serve)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        with anyio.move_on_after(0.05) as waiting:
            await made.wait_ready()
        assert waiting.cancelled_caught
        assert made.why_not_ready() == "tested: catalog: it does not answer"
        await made.stop()


async def test_its_clock_is_its_own() -> None:
    """Its tasks date their messages by it, from the moment when it is set wrong."""
    clocks: list[float] = []

    async def serve(process: Process[ProcessSettings], bus: Bus) -> None:
        process.health.set("tested", ok=True)
        await process.stopping.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)

    async def look() -> None:
        clocks.append(header.now())

    async with running(serve) as made:
        made.clock_ahead = 1000.0
        await made.stop()
    assert 900 < clocks[0] - header.now() < 1100
