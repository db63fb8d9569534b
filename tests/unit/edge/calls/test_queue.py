"""The line of calls that wait for room in a pool."""

from __future__ import annotations

import asyncio
import time

import anyio
import pytest

from mcpfleet.edge.calls.queue import _Line, _Ticket
from mcpfleet.edge.settings import EdgeSettings

pytestmark = pytest.mark.usefixtures("jumping")


async def test_a_place_that_is_given_while_the_pause_ends_is_kept() -> None:
    """Both in one turn of a loop that was late: the ticket is out of the line, and may try."""
    line, loop = _Line(EdgeSettings(probe_min=0.05, probe_max=0.05)), asyncio.get_running_loop()

    def be_late() -> None:
        loop.call_at(loop.time() + 0.04, time.sleep, 0.03)
        loop.call_at(loop.time() + 0.051, line.release)

    loop.call_soon(be_late)
    with anyio.fail_after(5):
        assert await line.wait(_Ticket(), time.monotonic() + 4, returns=False)
