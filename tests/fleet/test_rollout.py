"""Two versions of an application behind one pool, rolled over under load."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcpfleet.testing.fleet import Fleet
from tests.kit.waiting import until

VERSION = '''
import os

from mcpfleet.app import App

app = App("shop", version="{version}")


@app.tool()
async def same() -> int:
    """Is the same in both versions."""
    return os.getpid()


@app.tool()
async def changed({parameter}: int) -> str:
    """Takes another parameter in each version."""
    return "{version}"
'''
CALLERS = 4


class Load:
    """Clients that call without a pause, and keep what went wrong."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self.errors: list[str] = []
        self.answered: set[int] = set()
        self.calls = 0

    async def run(self, number: int) -> None:
        """Call until cancelled."""
        async with Client(self._urls[number % len(self._urls)]) as client:
            while True:
                try:
                    result = await client.call_tool("same", {})
                except MCPError as error:
                    self.errors.append(str(error))
                    continue
                self.calls += 1
                if result.is_error:
                    self.errors.append(str(result.content))
                else:
                    self.answered.add(result.structured_content)


async def test_a_rollout_costs_no_call_and_changes_each_list_once(tmp_path: Path) -> None:
    """Equal definitions share their calls, the list is the majority's, and no call gets 503."""
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(VERSION.format(version="1.0.0", parameter="first"))
    new.write_text(VERSION.format(version="2.0.0", parameter="second"))
    async with Fleet(old, edges=2, workers=2) as fleet:
        load = Load(fleet.urls)
        lists = [Lists(url) for url in fleet.urls]
        async with anyio.create_task_group() as tasks:
            for number in range(CALLERS):
                tasks.start_soon(load.run, number)
            for watch in lists:
                tasks.start_soon(watch.run)
            for leaving in list(fleet.workers):
                await fleet.add_worker(new)
                leaving.signal(signal.SIGTERM)
                await until(lambda: not leaving.is_running, within=20)  # noqa: B023  # waited for here
            await until(lambda: all(watch.seen[-1:] == ["second"] for watch in lists))
            before = load.calls
            await until(lambda: load.calls > before + 20)
            tasks.cancel_scope.cancel()
        assert load.errors == []
        assert {worker.pid for worker in fleet.workers if worker.is_running} <= load.answered
        assert [watch.seen for watch in lists] == [["first", "second"]] * 2


class Lists:
    """Which parameter the changed tool has, each time that it is another than before."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.seen: list[str] = []

    async def run(self) -> None:
        """List until cancelled."""
        async with Client(self._url) as client:
            while True:
                tools = (await client.list_tools(cache_mode="bypass")).tools
                [[parameter]] = [tool.input_schema["properties"] for tool in tools if tool.name == "changed"]
                if self.seen[-1:] != [parameter]:
                    self.seen.append(parameter)
                await anyio.sleep(0.02)
