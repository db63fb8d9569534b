"""The source hook: an application hears which of its URIs the clients of the whole fleet watch."""

from __future__ import annotations

import pytest

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import BOOK, OTHER, library
from tests.contract.fleet.listener import listening
from tests.contract.fleet.test_stream_permission import ANN, BOB, HIDDEN, OPEN, shelf
from tests.contract.fleet.test_stream_permission import fleet as guarded
from tests.contract.fleet.test_streams import at_every_edge
from tests.kit.waiting import until


def following(app: App) -> list[frozenset[str]]:
    """Have an application follow what is watched."""
    told: list[frozenset[str]] = []

    @app.watched
    async def follow(uris: frozenset[str]) -> None:
        told.append(uris)

    return told


async def test_an_application_hears_what_is_watched_at_any_edge_and_when_nobody_watches() -> None:
    app = library()
    told = following(app)
    async with LocalFleet(app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        async with listening(one, "/mcp", 2, resourceSubscriptions=[BOOK, "else://where"]):
            await until(lambda: told and told[-1] == {BOOK})
            async with listening(two, "/mcp", resourceSubscriptions=[OTHER]):
                await until(lambda: told[-1] == {BOOK, OTHER})
            await until(lambda: told[-1] == {BOOK})
        await until(lambda: told[-1] == frozenset())


async def test_a_plain_function_is_told_too_and_one_that_fails_keeps_nobody_from_hearing() -> None:
    app = library()
    told: list[frozenset[str]] = []

    @app.watched
    async def fail(uris: frozenset[str]) -> None:
        raise OSError("the source is away")

    @app.watched
    def follow(uris: frozenset[str]) -> None:
        told.append(uris)

    async with LocalFleet(app) as fleet:
        async with at_every_edge(fleet, resourceSubscriptions=[BOOK]):
            await until(lambda: told and told[-1] == {BOOK})
        await until(lambda: told[-1] == frozenset())
        assert fleet.lines("watcher failed")


async def test_what_an_edge_said_goes_with_it_and_a_late_worker_hears_what_is_watched() -> None:
    """Whether an edge died or is cut off; reports are repeated for workers that come later."""
    app, late = library(), library()
    told, told_late = following(app), following(late)
    settings = {"MCPFLEET_WATCHED_STATED": "1", "MCPFLEET_WATCHED_LASTS": "4"}
    async with (
        LocalFleet(app, edges=2, environment=settings) as fleet,
        fleet.http(0) as one,
        fleet.http(1) as two,
        listening(one, "/mcp", resourceSubscriptions=[BOOK]),
        listening(two, "/mcp", resourceSubscriptions=[OTHER]),
    ):
        await until(lambda: told and told[-1] == {BOOK, OTHER})
        await fleet.add_worker(late)
        await until(lambda: told_late and told_late[-1] == {BOOK, OTHER})
        fleet.edges[1].cut()
        await until(lambda: told[-1] == {BOOK})
        fleet.edges[1].heal()
        await until(lambda: told[-1] == {BOOK, OTHER})


@pytest.mark.rule("T12")
async def test_what_is_hidden_from_who_watches_it_is_not_watched() -> None:
    app = shelf()
    told = following(app)
    async with guarded(app) as fleet, fleet.http() as http:
        async with listening(http, "/mcp", token=BOB, resourceSubscriptions=[HIDDEN, OPEN]):
            await until(lambda: told and told[-1] == {OPEN})
            async with listening(http, "/mcp", token=ANN, resourceSubscriptions=[HIDDEN]):
                await until(lambda: told[-1] == {HIDDEN, OPEN})
        assert frozenset({HIDDEN}) not in told[:2]


async def test_what_comes_to_be_served_while_it_is_watched_is_told() -> None:
    app = shelf()
    told = following(app)
    async with LocalFleet(app) as fleet, at_every_edge(fleet, resourceSubscriptions=["shelf://new", OPEN]):
        await until(lambda: told and told[-1] == {OPEN})

        async def new() -> str:
            """New on the shelf."""
            return "new"

        app.resource("shelf://new")(new)
        await until(lambda: told[-1] == {"shelf://new", OPEN})
