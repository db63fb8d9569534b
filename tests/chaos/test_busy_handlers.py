"""Handlers that hold their loop or the processor: whom they harm, and who is told."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
from mcp import Client

from mcpfleet.testing.fleet import Fleet
from tests.chaos.callers import Callers, Told
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")
HELD = 4.5
"""Seconds that a handler holds something: longer than a worker may be silent before its calls count as lost."""
IN_A_ROW = 30
"""Calls that all reach the free one of two workers: one time in a thousand million by chance alone."""
SOON_LOST = {"MCPFLEET_ALIVE_INTERVAL": "1", "MCPFLEET_LOST_AFTER": "3"}


def busy(folder: Path) -> Fleet:
    """A fleet of two workers, whose calls share them."""
    return Fleet(APP, edges=2, workers=2, environment={**SOON_LOST, "CHAOS_EFFECTS": str(folder / "effects")})


async def use(fleet: Fleet, tool: str, times: int, seconds: float, results: list[object]) -> None:
    """Call a tool so many times at once, over one edge after another."""

    async def call(url: str) -> None:
        async with Client(url) as client:
            result = await client.call_tool(tool, {"seconds": seconds})
            assert not result.is_error, result.content
            results.append(result.structured_content)

    async with anyio.create_task_group() as tasks:
        for number in range(times):
            tasks.start_soon(call, fleet.urls[number % 2])


def answered_in_a_row(callers: Callers) -> int:
    """The longest row of calls, one begun after the other, that all have their answer."""
    longest = row = 0
    before = -1
    for number in sorted(int(call.token.rpartition("-")[2]) for call in callers.calls):
        row = row + 1 if number == before + 1 else 1
        longest, before = max(longest, row), number
    return longest


async def test_a_handler_that_blocks_its_loop_loses_no_call_and_is_named(tmp_path: Path) -> None:
    """The bus lives on another thread: calls beside it are late, and neither lost nor called so."""
    results: list[object] = []
    async with busy(tmp_path) as fleet:
        callers = Callers(fleet.urls, rate=20.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, fleet, "linger", 8, 1.0, results)
            tasks.start_soon(use, fleet, "block", 1, HELD, results)
            tasks.start_soon(callers.run, 60.0)
            # New calls go to the other worker once the first is known to be blocked: by chance every second would wait.
            await until(lambda: "handlers' loop blocked" in fleet.logs(), within=30)
            await until(lambda: answered_in_a_row(callers) >= IN_A_ROW, within=30)
            assert len(results) < 9, "the handler still holds its loop"
            callers.is_over = True
            (tmp_path / "released").touch()
        [line] = [line for line in fleet.logs().splitlines() if "handlers' loop blocked" in line]
    assert len(results) == 9
    assert callers.counts()[Told.RESULT] == len(callers.calls), callers.counts()
    assert json.loads(line)["function"] == "block"


async def test_handlers_that_burn_the_processor_lose_no_call(tmp_path: Path) -> None:
    """Eight threads that compute hold the interpreter, and the worker still says that its calls live."""
    results: list[object] = []
    async with busy(tmp_path) as fleet, anyio.create_task_group() as tasks:
        callers = Callers(fleet.urls, rate=10.0)
        tasks.start_soon(use, fleet, "burn", 8, HELD, results)
        tasks.start_soon(callers.run, HELD)
    assert len(results) == 8
    assert callers.counts()[Told.RESULT] == len(callers.calls), callers.counts()
