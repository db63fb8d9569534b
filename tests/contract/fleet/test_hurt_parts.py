"""A client of a local fleet whose parts are killed, cut off, paused or misled about the time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import ObservedApp, is_uncertain, text
from tests.kit.waiting import pause, until

FACTOR = 10
"""Silence is noticed after 0.6 s instead of 6."""
WITHIN = 20.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""


class Holding:
    """A call that holds, in a task of its own; it streams."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.result: CallToolResult | None = None
        self.error: MCPError | None = None
        self._streams = anyio.Event()

    async def run(self, client: Client) -> None:
        try:
            self.result = await client.call_tool("hold", {"name": self.name}, progress_callback=self._hear)
        except MCPError as error:
            self.error = error

    async def wait_running(self) -> None:
        """Wait until its handler runs, and its answer has become a stream."""
        with anyio.fail_after(WITHIN):
            await self._streams.wait()

    async def _hear(self, progress: float, total: float | None, message: str | None) -> None:
        self._streams.set()


@asynccontextmanager
async def holding(client: Client) -> AsyncIterator[Holding]:
    """A call whose handler runs, for the length of a block, which begins with that and waits for its end."""
    call = Holding(f"held {id(client)}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run, client)
        await call.wait_running()
        yield call


async def not_run(client: Client, tool: str, arguments: dict[str, Any]) -> MCPError:
    """Call, and be told that it has not run."""
    with pytest.raises(MCPError) as refused:
        await client.call_tool(tool, arguments)
    assert refused.value.error.code == -32603
    assert "retryAfter" in (refused.value.error.data or {}), refused.value.error
    return refused.value


# -- killed ----------------------------------------------------------------------------------------------------------


async def test_a_killed_workers_calls_end_uncertain_and_the_others_do_not_notice(observed: ObservedApp) -> None:
    """Invariant 6, I3."""
    async with LocalFleet(observed.app, factor=FACTOR) as fleet, fleet.client() as client, fleet.client() as other:
        async with holding(client) as hit:
            await fleet.add_worker()
            began = time.monotonic()
            await fleet.workers[0].kill()
            async with holding(other) as spared:
                await until(lambda: hit.result, within=WITHIN)
                assert time.monotonic() - began > 0.5, "silence is what tells"
                observed.released[spared.name].set()
        assert is_uncertain(hit.result)
        assert text(spared.result) == "released"
        assert hit.name in observed.cancelled


async def test_without_a_worker_a_call_has_not_run_and_the_list_stays(observed: ObservedApp) -> None:
    """D4."""
    async with LocalFleet(observed.app, factor=FACTOR) as fleet, fleet.client() as client:
        before = await client.list_tools(cache_mode="bypass")
        await fleet.workers[0].kill()
        await not_run(client, "act", {"token": "one"})
        assert await client.list_tools(cache_mode="bypass") == before
        await fleet.add_worker()
        assert text(await client.call_tool("act", {"token": "two"})) == "two"
    assert observed.effects == {"two": 1}


async def test_a_killed_edges_calls_are_cancelled_and_the_other_edge_serves(observed: ObservedApp) -> None:
    """Invariant 6: only where its own edge died, a call's answer just breaks off."""
    async with LocalFleet(observed.app, edges=2, factor=FACTOR) as fleet, fleet.client(0) as client:
        async with holding(client) as call:
            await fleet.edges[0].kill()
        assert call.error is not None
        await until(lambda: call.name in observed.cancelled, within=WITHIN)
        async with fleet.client(1) as other:
            assert (await other.call_tool("add", {"left": 1, "right": 1})).structured_content == 2


async def test_without_the_catalog_and_authorization_calls_go_on(observed: ObservedApp) -> None:
    """They are not on the way of a call, as long as a verdict lasts."""
    environment = {"MCPFLEET_ADMISSION_LASTS": "60"}
    async with LocalFleet(observed.app, environment=environment) as fleet, fleet.client() as client:
        await client.call_tool("act", {"token": "before"})
        await fleet.catalog.kill()
        await fleet.authorization.kill()
        assert text(await client.call_tool("act", {"token": "after"})) == "after"


# -- cut off ---------------------------------------------------------------------------------------------------------


async def test_calls_on_an_edge_that_is_cut_off_are_uncertain_and_new_ones_have_not_run(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app, edges=2, factor=FACTOR) as fleet, fleet.client(0) as client:
        async with fleet.client(1) as other:
            async with holding(client) as call:
                fleet.edges[0].cut()
                await until(lambda: fleet.lines("link lost"), within=WITHIN)
                await not_run(client, "act", {"token": "one"})
                assert text(await other.call_tool("act", {"token": "two"})) == "two"
                await until(lambda: call.name in observed.cancelled, within=WITHIN)
                fleet.edges[0].heal()
            assert is_uncertain(call.result)
        assert text(await client.call_tool("act", {"token": "three"})) == "three"
    assert observed.effects == {"two": 1, "three": 1}


async def test_a_worker_that_is_cut_off_for_a_moment_sends_the_end_of_its_call_again(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app) as fleet, fleet.client() as client, holding(client) as call:
        fleet.workers[0].cut()
        observed.released[call.name].set()
        await anyio.sleep(0.1)
        assert call.result is None
        fleet.workers[0].heal()
    assert text(call.result) == "released"


async def test_a_worker_that_is_cut_off_loses_its_calls_and_serves_again_afterwards(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app, factor=FACTOR) as fleet, fleet.client() as client:
        async with holding(client) as call:
            fleet.workers[0].cut()
            await until(lambda: call.result, within=WITHIN)
        assert is_uncertain(call.result)
        fleet.workers[0].heal()
        with anyio.fail_after(WITHIN):
            while True:
                try:
                    result = await client.call_tool("act", {"token": "one"})
                except MCPError:
                    await pause()
                    continue
                break
        assert text(result) == "one"
    assert observed.effects == {"one": 1}


async def test_while_the_switch_is_frozen_for_a_moment_no_call_is_harmed(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app) as fleet, fleet.client() as client, anyio.create_task_group() as tasks:

        async def thaw() -> None:
            await anyio.sleep(0.1)
            fleet.switch.thaw()

        fleet.switch.freeze()
        tasks.start_soon(thaw)
        assert text(await client.call_tool("act", {"token": "one"})) == "one"
    assert observed.effects == {"one": 1}


# -- misled ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [10.0, -10.0])
async def test_a_worker_with_a_wrong_clock_takes_no_call_and_that_is_logged_as_such(
    observed: ObservedApp, ahead: float
) -> None:
    """A receiver answers `expired` with its own clock."""
    environment = {"MCPFLEET_QUEUE_WAIT": "0.2", "MCPFLEET_ANNOUNCE_INTERVAL": "0.1"}
    async with LocalFleet(observed.app, environment=environment) as fleet, fleet.client() as client:
        fleet.workers[0].clock_ahead = ahead
        await not_run(client, "act", {"token": "one"})
        assert fleet.lines("expired call")[0]["process"] == fleet.workers[0].id
        await until(lambda: fleet.lines("announcement not answered"))
        line = fleet.lines("announcement not answered")[0]
        assert line["process"] == fleet.workers[0].id
        assert f"differs by {-ahead:+.1f} s" in line["error"]

        fleet.workers[0].clock_ahead = 0.0
        assert text(await client.call_tool("act", {"token": "two"})) == "two"
    assert observed.effects == {"two": 1}


@pytest.mark.parametrize("ahead", [10.0, -10.0])
async def test_calls_of_an_edge_with_a_wrong_clock_do_not_run_and_the_log_says_why(
    observed: ObservedApp, ahead: float
) -> None:
    environment = {"MCPFLEET_QUEUE_WAIT": "0.2"}
    async with LocalFleet(observed.app, edges=2, environment=environment) as fleet, fleet.client(0) as client:
        await client.call_tool("act", {"token": "admitted"})
        fleet.edges[0].clock_ahead = ahead
        await not_run(client, "act", {"token": "one"})
        line = fleet.lines("clock differs")[0]
        assert (line["process"], line["skew"]) == (fleet.edges[0].id, pytest.approx(-ahead, abs=1))
        async with fleet.client(1) as other:
            assert text(await other.call_tool("act", {"token": "two"})) == "two"
    assert observed.effects == {"admitted": 1, "two": 1}


async def test_clocks_that_differ_a_little_harm_nobody(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app) as fleet, fleet.client() as client:
        for ahead in (0.7, -0.7):
            fleet.workers[0].clock_ahead = ahead
            assert (await client.call_tool("add", {"left": 1, "right": 1})).structured_content == 2
