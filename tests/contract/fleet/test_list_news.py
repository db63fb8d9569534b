"""Only the application knows what `@app.resources()` functions return: it says when that changes."""

from __future__ import annotations

import threading

import anyio
import pytest

from mcpfleet.app import App, Context, Resource
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import library
from tests.contract.fleet.listener import ACK, changed, listening
from tests.contract.fleet.test_stream_permission import ANN, BOB
from tests.contract.fleet.test_stream_permission import fleet as guarded
from tests.contract.fleet.test_streams import at_every_edge, each
from tests.kit.waiting import until

TOLD = [ACK, changed("resources")]


def archive(**options: list[str]) -> App:
    """An application that lists its boxes, of which there come to be more."""
    app = App("archive", version="1.0.0")
    boxes: list[str] = []

    @app.resource("archive://{box}")
    async def box(box: str) -> str:
        """A box."""
        return box

    @app.resources(**options)  # type: ignore[arg-type]  # some of what may be said
    async def shelf() -> list[Resource]:
        """List the boxes."""
        return [Resource(uri=f"archive://{name}", name=name) for name in boxes]

    @app.tool()
    async def add(name: str, ctx: Context) -> str:
        """Add a box."""
        boxes.append(name)
        await ctx.resources_changed()
        return name

    @app.tool()
    def add_plainly(name: str, ctx: Context) -> str:
        """Add a box, from a thread."""
        boxes.append(name)
        ctx.sync.resources_changed()
        return name

    return app


@pytest.mark.rule("S15")
@pytest.mark.parametrize("tool", ["add", "add_plainly"])
async def test_who_listens_to_lists_hears_of_it_at_every_edge_and_lists_what_is_new(tool: str) -> None:
    async with (
        LocalFleet(archive(), edges=2) as fleet,
        at_every_edge(fleet, 2, resourcesListChanged=True) as streams,
        at_every_edge(fleet, 1, toolsListChanged=True, resourceSubscriptions=["archive://a"]) as others,
        fleet.client(1) as client,
    ):
        await client.call_tool(tool, {"name": "a"})
        await each(streams, lambda stream: stream.kinds() == TOLD)
        assert [found.name for found in (await client.list_resources(cache_mode="refresh")).resources] == ["a"]
        await client.call_tool(tool, {"name": "b"})
        await each(streams, lambda stream: stream.kinds() == [*TOLD, TOLD[1]])
        assert [stream.kinds() for stream in others] == [[ACK]] * 2


async def test_an_application_says_it_outside_of_calls_too_on_any_thread() -> None:
    app = archive()
    app.resources_changed()  # nobody serves it yet
    async with LocalFleet(app) as fleet, at_every_edge(fleet, resourcesListChanged=True) as [stream]:
        thread = threading.Thread(target=app.resources_changed)
        thread.start()
        await until(lambda: stream.kinds() == TOLD)
        thread.join()


@pytest.mark.rule("T12")
async def test_who_is_shown_no_list_hears_nothing_of_it() -> None:
    """Whether it is hidden from the caller, or its scopes are lacking."""
    for options in ({"only_for": ["tenant:acme"]}, {"scopes": ["read"]}):
        app = archive(**options)
        async with (
            guarded(app) as fleet,
            fleet.http() as http,
            listening(http, "/mcp", token=ANN, resourcesListChanged=True) as [anns],
            listening(http, "/mcp", token=BOB, resourcesListChanged=True) as [bobs],
        ):
            app.resources_changed()
            await until(lambda anns=anns: anns.kinds() == TOLD)  # type: ignore[misc]  # mypy infers no lambda with a default
            app.remove("template", "archive://{box}")
            await until(lambda bobs=bobs: len(bobs.messages) > 1)  # type: ignore[misc]  # the same
            assert bobs.kinds() == TOLD, "of the template alone"


async def test_after_a_gap_who_listens_to_lists_is_told_once_where_there_are_such_lists() -> None:
    for app, expected in ((archive(), TOLD), (library(), [ACK])):
        async with (
            LocalFleet(app, factor=5) as fleet,
            fleet.http() as http,
            listening(http, "/mcp", 3, resourcesListChanged=True) as streams,
        ):
            fleet.edges[0].cut()
            await until(lambda fleet=fleet: fleet.lines("link lost"))  # type: ignore[misc]  # mypy infers no lambda with a default
            fleet.edges[0].heal()
            await until(lambda fleet=fleet: len(fleet.lines("link up")) > 6)  # type: ignore[misc]  # the same
            await each(streams, lambda stream, expected=expected: stream.kinds() == expected)  # type: ignore[misc]  # the same
            await anyio.sleep(0.5)
            assert [stream.kinds() for stream in streams] == [expected] * 3
