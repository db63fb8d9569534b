"""The example of an extension of one's own: its method, its notification, and its error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpfleet.app import App, load
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import listening
from tests.contract.fleet.stock_app import CHANGED, asked
from tests.kit.waiting import until

EXAMPLE = Path(__file__).parents[3] / "examples" / "stock.py"


@pytest.fixture
def app() -> Iterator[App]:
    """Load it anew, so that each test has a full shelf."""
    path = list(sys.path)
    yield load(str(EXAMPLE))
    sys.path[:] = path
    del sys.modules["stock"]


@pytest.mark.rule("X43", "X46")
async def test_a_reservation_is_answered_and_told_until_nothing_is_left(app: App) -> None:
    async with LocalFleet(app) as fleet, fleet.http() as http, fleet.client() as client:
        async with listening(http, "/mcp", stockItems=["lamp"]) as [stream]:
            for left in (2, 1, 0):
                made = await http.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, name="lamp"))
                assert made.json()["result"]["left"] == left
            await until(lambda: any(each.get("method") == CHANGED for each in stream.messages))
        refused = await http.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, name="lamp"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, 4090)
        looked = await client.call_tool("look", {"sku": "chair"})
        assert looked.structured_content == {"result": 12} or "12" in str(looked.content)
