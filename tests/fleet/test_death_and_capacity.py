"""The answers of a fleet when a worker dies, when there is none, and when all are full."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from mcpfleet.testing.fleet import Fleet
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")
LOST = 3.0
"""Seconds of silence after which a worker's calls are lost; 6 by default."""
SOON_LOST = {"MCPFLEET_ALIVE_INTERVAL": "1", "MCPFLEET_LOST_AFTER": str(LOST)}


class Ongoing:
    """A call whose answer is waited for in a task of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.result: CallToolResult | None = None

    async def run(self, *, task_status: TaskStatus[int]) -> None:
        """Start a call that holds, and report the process that runs it."""
        self._folder.mkdir()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._call)
            started = self._folder / "started"
            await until(lambda: started.exists() and started.read_text())
            task_status.started(int(started.read_text()))

    async def _call(self) -> None:
        async with Client(self._url) as client:
            self.result = await client.call_tool("hold", {"folder": str(self._folder)})

    @property
    def text(self) -> str:
        """The text of the call's result."""
        assert self.result is not None
        [block] = self.result.content
        assert isinstance(block, TextContent)
        return block.text


async def test_a_killed_workers_call_ends_uncertain_and_the_others_do_not_notice(tmp_path: Path) -> None:
    """Invariant 6, I3: an answer soon, which says that it may have run; the other worker's calls go on."""
    async with Fleet(APP, edges=2, workers=2, environment=SOON_LOST) as fleet:
        calls = [Ongoing(fleet.urls[number % 2], tmp_path / str(number)) for number in range(8)]
        async with anyio.create_task_group() as tasks:
            pids = [await tasks.start(call.run) for call in calls]
            assert len(set(pids)) == 2, "calls are shared between the workers"
            victim = fleet.workers[0]
            hit = [call for call, pid in zip(calls, pids, strict=True) if pid == victim.pid]
            spared = [call for call in calls if call not in hit]

            victim.signal(signal.SIGKILL)
            await until(lambda: all(call.result is not None for call in hit), within=LOST + 3.0)
            assert all(call.result is None for call in spared), "a call of the other worker has noticed"
            for number in range(len(calls)):
                (tmp_path / str(number) / "release").touch()

            async with Client(fleet.urls[0]) as client:
                result = await client.call_tool("whoami", {})
            assert result.structured_content == fleet.workers[1].pid
        for call in hit:
            assert call.result is not None
            assert call.result.is_error
            assert "uncertain" in call.text
            assert "before you call it again" in call.text
        assert [call.text for call in spared] == ["released"] * len(spared)


async def test_without_a_worker_the_list_stays_and_a_call_gets_503(tmp_path: Path) -> None:
    """D4: a bounded wait, then a 503 that names the delay; lists do not flap with workers."""
    async with Fleet(APP, environment={"MCPFLEET_QUEUE_WAIT": "1"}) as fleet, Client(fleet.urls[0]) as client:
        before = await client.list_tools(cache_mode="bypass")
        fleet.workers[0].signal(signal.SIGKILL)
        await until(lambda: not fleet.workers[0].is_running)

        asked = time.monotonic()
        with pytest.raises(MCPError) as refused:
            await client.call_tool("whoami", {})
        assert 1 <= time.monotonic() - asked < 15  # a call may take 30 s
        assert refused.value.error.code == -32603
        assert "retryAfter" in refused.value.error.data
        assert await client.list_tools(cache_mode="bypass") == before


async def test_full_workers_make_calls_wait_for_room_and_then_refuse(tmp_path: Path) -> None:
    """D4: the queue is bounded in time; a slot that frees is taken by the one who waits."""
    environment = {"MCPFLEET_SLOTS": "2", "MCPFLEET_QUEUE": "0", "MCPFLEET_QUEUE_WAIT": "1"}
    async with Fleet(APP, edges=2, environment=environment) as fleet, anyio.create_task_group() as tasks:
        calls = [Ongoing(fleet.urls[number], tmp_path / str(number)) for number in range(2)]
        for call in calls:
            await tasks.start(call.run)
        async with Client(fleet.urls[1]) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("whoami", {})
            assert refused.value.error.code == -32603

            async def free() -> None:
                await anyio.sleep(0.3)
                (tmp_path / "0" / "release").touch()

            tasks.start_soon(free)
            result = await client.call_tool("whoami", {})
            assert result.structured_content == fleet.workers[0].pid
        (tmp_path / "1" / "release").touch()
