"""Streams after a gap in which hints may have been lost: what they hear, and when permission is asked again."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.bus.memory.faults import Faults
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import library
from tests.contract.fleet.listener import ACK, changed, listening
from tests.kit.waiting import until

BOOKS = [f"library://books/{number}" for number in range(20)]


async def test_after_a_gap_each_stream_is_told_once_of_each_resource_that_it_watches() -> None:
    """S19, blueprint 4: nobody knows what was lost, so whoever watches reads again."""
    async with (
        LocalFleet(library(), factor=5) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", 2, resourceSubscriptions=BOOKS) as streams,
        listening(http, "/mcp", toolsListChanged=True) as [other],
    ):
        fleet.edges[0].cut()
        await until(lambda: fleet.lines("link lost"))
        fleet.edges[0].heal()
        await until(lambda: all(len(stream.messages) == 1 + len(BOOKS) for stream in streams))
        for stream in streams:
            assert sorted(stream.uris()) == sorted(BOOKS)
        assert other.kinds() == [ACK]


async def test_catching_up_is_slow_and_ends() -> None:
    settings = {"MCPFLEET_CATCH_UP_RATE": "20", "MCPFLEET_CATCH_UP_LASTS": "0.5"}
    async with (
        LocalFleet(library(), factor=5, environment=settings) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", resourceSubscriptions=BOOKS) as [stream],
    ):
        fleet.edges[0].cut()
        await until(lambda: fleet.lines("link lost"))
        fleet.edges[0].heal()
        await until(lambda: len(stream.messages) > 1)
        await anyio.sleep(1)
        assert 2 <= len(stream.uris()) <= 12


async def test_a_catalog_that_changed_in_a_gap_is_found_by_its_number() -> None:
    app = library()
    async with (
        LocalFleet(app, factor=5) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", toolsListChanged=True) as [stream],
    ):
        fleet.edges[0].cut()
        app.remove("tool", "place_hold_plainly")
        await until(lambda: len(fleet.lines("snapshot changed")) == 2)
        fleet.edges[0].heal()
        await until(lambda: stream.kinds() == [ACK, changed("tools")])


@pytest.mark.rule("invariant 5")
async def test_lost_hints_of_the_catalog_are_found_by_the_timer() -> None:
    """Invariant 5: a hint that is lost delays a client by a stated bound."""
    app = library()
    async with (
        LocalFleet(app, environment={"MCPFLEET_HEAL_INTERVAL": "0.5"}) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", toolsListChanged=True) as [stream],
    ):
        fleet.switch.misbehave(Faults(lost=1.0, subjects=("*.hint.catalog.*",)))
        app.remove("tool", "place_hold_plainly")
        await until(lambda: stream.kinds() == [ACK, changed("tools")])
