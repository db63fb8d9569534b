"""A failed report ends no process."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.process.logs import reporting
from tests.kit.logs import captured

WITHOUT_READER = """
import os
from mcpfleet.process import logs
from mcpfleet.process.logs import say_ready
logs.configure("json", "info", {})
os.close(1)
say_ready(logs.logger("edge", "id"), "http://127.0.0.1:1/mcp")
logs.logger("edge", "id").info("goes on")
os._exit(0)
"""


@pytest.mark.rule("T24")
def test_a_report_that_fails_is_logged_and_the_next_is_tried() -> None:
    lines = LogCapture()
    for _ in range(2):
        with reporting(captured(lines), "figures"):
            raise OSError("Too many open files")
    assert [(line["event"], line["report"]) for line in lines.entries] == [("report failed", "figures")] * 2


async def test_cancellation_passes_through_a_report() -> None:
    lines = LogCapture()
    with anyio.move_on_after(0.01) as scope, reporting(captured(lines), "figures"):
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert lines.entries == []


@pytest.mark.rule("T24")
async def test_nobody_needs_to_hear_that_a_process_is_ready(child: Any) -> None:
    """The program that started it may have closed its end."""
    async with child(WITHOUT_READER) as process:
        assert (await process.until("report failed"))["report"] == "ready"
        await process.until("goes on")
        assert await process.ended() == 0


@pytest.mark.rule("T24")
@pytest.mark.parametrize("error", [OSError("x"), ValueError("x"), RuntimeError("can't start new thread")])
def test_whatever_a_report_raises_is_held(error: Exception) -> None:
    with reporting(captured(LogCapture()), "figures"):
        raise error
