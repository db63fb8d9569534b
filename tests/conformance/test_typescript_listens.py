"""The official TypeScript client listens over two edges, hears what changes, and sees the clean end."""

from __future__ import annotations

import json
import shutil
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcpfleet.testing.fleet import Fleet
from tests.conformance.test_typescript_client import PROJECT
from tests.fleet.test_streams import APP, BOOK
from tests.kit.node import NODE, environment, install
from tests.kit.waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(120)]
PROGRAM = "listen.mjs"


async def test_it_is_told_of_changes_at_either_edge_and_takes_the_end_for_a_graceful_one(tmp_path: Path) -> None:
    """S6, D1, M58: a result alone ends a stream; no notification is strange to the client."""
    (tmp_path / "node_modules").symlink_to(install(PROJECT) / "node_modules")
    program = shutil.copy(PROJECT / PROGRAM, tmp_path)
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(Fleet(APP, edges=2))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        heard: list[list[Any]] = [[], []]
        for url, lines in zip(fleet.urls, heard, strict=True):
            tasks.start_soon(_listen, [str(NODE), str(program), url, BOOK], lines)
        await until(lambda: all(heard), within=30)
        async with Client(fleet.urls[1]) as client:
            await client.call_tool("rename", {"book": 1, "title": "Sanditon"})
            await until(lambda: all(len(lines) == 2 for lines in heard))
            await client.call_tool("grow", {"name": "added"})
            await until(lambda: all(len(lines) == 3 for lines in heard))
        for edge in fleet.edges:
            edge.signal(signal.SIGTERM)
        await until(lambda: all(len(lines) == 4 for lines in heard))
    honoured = {"toolsListChanged": True, "resourceSubscriptions": [BOOK]}
    for lines in heard:
        assert lines == [
            {"honoured": honoured},
            {"method": "notifications/resources/updated", "uri": BOOK},
            {"method": "notifications/tools/list_changed", "uri": None},
            {"closed": "graceful"},
        ]


async def _listen(command: list[str], lines: list[Any]) -> None:
    """Run the program, and keep what it says."""
    done = ""
    async with await anyio.open_process(command, env=environment(), stderr=None) as process:
        assert process.stdout is not None
        async for part in process.stdout:
            done += part.decode()
            *whole, done = done.split("\n")
            lines += [json.loads(line) for line in whole]
