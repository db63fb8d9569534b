"""The short form of the floods of HTTP/2."""

from __future__ import annotations

import pytest

from tests.chaos.http2_floods import flooded
from tests.kit.h2_floods import FLOODS

MOST = 2.0
"""Seconds, of the edge and of its neighbour: four times what is meant, since other tests run beside this one and a
shared processor may be half as fast. A flood that is not bounded takes 7 s and more.
"""
SOME = (
    "PRIORITY among open streams",
    "rapid reset",
    "made reset: DATA after the end",
    "SETTINGS of windows",
    "PING",
    "WINDOW_UPDATE of many",
    "unknown frames",
    "DATA of a byte",
    "many CONTINUATION",
    "many headers",
)
"""One of each kind."""


@pytest.mark.rule("T26")
@pytest.mark.timeout(120)
async def test_a_flood_of_http2_costs_little_and_delays_no_neighbour() -> None:
    costs = await flooded([name for name in SOME if name in FLOODS], 5_000_000)
    assert len(costs) == len(SOME) + 1
    assert [cost for cost in costs if cost.cpu > MOST or cost.worst > MOST or cost.wrong] == []
    assert costs[-1].after < costs[0].before + 30
