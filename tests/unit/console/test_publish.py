"""A process says its figures for as long as it lives, and lives on where that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.bus.port import Incoming
from mcpfleet.console.publish import serve_console
from mcpfleet.contracts.stats import ALL_SUBJECTS, Role
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.fabric import MemoryFabric, living
from tests.kit.logs import captured
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")

NO_TEXT: Any = None
"""A reason that is no text, by a mistake of ours: composing the figures fails by it."""


@pytest.mark.rule("T24")
async def test_figures_that_cannot_be_composed_end_no_process(tmp_path: Path) -> None:
    lines, heard = LogCapture(), list[Incoming]()
    process = Process("edge", ProcessSettings(console=True))
    process.log = captured(lines)
    process.health.set("odd", ok=False, why=NO_TEXT)
    fabric = MemoryFabric(tmp_path, process.settings)
    async with living(fabric), fabric.buses("edge", "catalog") as (bus, other), anyio.create_task_group() as tasks:
        await other.subscribe(ALL_SUBJECTS, heard.append)
        tasks.start_soon(serve_console, process, bus, Role.EDGE)
        await until(lambda: [line for line in lines.entries if line["event"] == "report failed"])
        process.health.set("odd", ok=True)
        await until(lambda: heard)
        tasks.cancel_scope.cancel()
