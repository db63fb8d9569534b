"""The official TypeScript client starts `mcpfleet stdio`, and hears over its two pipes what changes, in both eras."""

from __future__ import annotations

import json
import shutil
import sys
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

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]
PROGRAM = "stdio.mjs"
WITHIN = 60.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_hears_of_changes_and_of_a_listen_stream_that_breaks(mode: str, tmp_path: Path) -> None:
    """A stream that ends without a result is lost, as the notification of stdio tells."""
    (tmp_path / "node_modules").symlink_to(install(PROJECT) / "node_modules")
    program = shutil.copy(PROJECT / PROGRAM, tmp_path)
    lines: list[Any] = []
    async with Fleet(APP) as fleet:
        command = [str(NODE), str(program), mode, sys.executable, fleet.urls[0], BOOK]
        async with (
            await anyio.open_process(command, env=environment(), stderr=None) as process,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_read, process, lines)
            await until(lambda: lines, within=WITHIN)
            async with Client(fleet.urls[0]) as client:
                await client.call_tool("rename", {"book": 1, "title": "Sanditon"})
                await until(lambda: len(lines) == 2, within=WITHIN)
                await client.call_tool("grow", {"name": "added"})
                await until(lambda: len(lines) == 3, within=WITHIN)
            if mode == "auto":
                await fleet.edges[0].kill()
                await until(lambda: len(lines) == 4, within=WITHIN)
            assert process.stdin is not None
            await process.stdin.send(b"end\n")
            await process.wait()
    changes = [
        {"ready": True},
        {"method": "notifications/resources/updated", "uri": BOOK},
        {"method": "notifications/tools/list_changed", "uri": None},
    ]
    assert lines == [*changes, *([{"closed": "remote"}] if mode == "auto" else []), {"over": True}]


async def _read(process: anyio.abc.Process, lines: list[Any]) -> None:
    assert process.stdout is not None
    done = b""
    async for part in process.stdout:
        *ended, done = (done + part).split(b"\n")
        lines.extend(map(json.loads, ended))
