"""Listen streams in a whole fleet: what changes anywhere reaches each stream that wants it, whichever edge holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import BOOK, OTHER, library, text
from tests.contract.fleet.listener import ACK, END, KEY, UPDATED, Listener, changed, listening
from tests.kit.waiting import until
from tests.unit.edge.asgi import MODERN, request


@asynccontextmanager
async def at_every_edge(fleet: LocalFleet, count: int = 1, **notifications: Any) -> AsyncIterator[list[Listener]]:
    """So many streams at each edge."""
    async with AsyncExitStack() as stack:
        found: list[Listener] = []
        for number in range(len(fleet.edges)):
            http = await stack.enter_async_context(fleet.http(number))
            found += await stack.enter_async_context(listening(http, "/mcp", count, **notifications))
        yield found


async def each(streams: list[Listener], holds: Callable[[Listener], object], within: float = 10.0) -> None:
    """Wait until something holds for every stream."""
    await until(lambda: all(holds(stream) for stream in streams), within=within)


@pytest.mark.rule("S6", "S9")
@pytest.mark.parametrize("tool", ["place_hold", "place_hold_plainly"])
async def test_what_a_handler_publishes_reaches_the_streams_of_every_edge_once(tool: str) -> None:
    """M58, M44, S8: the acknowledgment is first, each message has its own stream's id, unwatched URIs bring nothing."""
    async with LocalFleet(library(), edges=2) as fleet:
        async with (
            at_every_edge(fleet, 3, resourceSubscriptions=[BOOK]) as streams,
            at_every_edge(fleet, 1, resourceSubscriptions=[OTHER]) as others,
            fleet.client(1) as client,
        ):
            await client.call_tool(tool, {"book": 1})
            await each(streams, lambda stream: stream.uris() == [BOOK])
            await client.call_tool(tool, {"book": 2})
            await each(others, lambda stream: stream.uris() == [OTHER])
        for stream in streams:
            assert stream.kinds() == [ACK, UPDATED]
            assert stream.messages[0]["params"]["notifications"] == {"resourceSubscriptions": [BOOK]}
            assert {message["params"]["_meta"][KEY] for message in stream.messages} == {stream.id}


@pytest.mark.rule("S18", "S10", "S19")
async def test_each_stream_hears_of_what_it_watches_alone_and_only_of_what_there_is() -> None:
    """Streams take no slot of a worker."""
    app = library()
    async with (
        LocalFleet(app, environment={"MCPFLEET_SLOTS": "1", "MCPFLEET_QUEUE": "0"}) as fleet,
        fleet.http() as http,
        fleet.client() as client,
        listening(http, "/mcp", resourceSubscriptions=[BOOK]) as [one],
    ):
        kinds: dict[str, Any] = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        async with listening(http, "/mcp", resourceSubscriptions=[OTHER], **kinds) as [two]:
            for book in (1, 2):
                await client.call_tool("place_hold", {"book": book})
            await two.told(2)
            await client.call_tool("place_hold", {"book": 2})
            await two.told(3)
            await one.told(2)
            assert (one.uris(), two.uris()) == ([BOOK], [OTHER, OTHER])
            assert two.messages[0]["params"]["notifications"] == {
                "toolsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": [OTHER],
            }


@pytest.mark.rule("S20")
async def test_a_listen_is_answered_by_events_whatever_its_client_prefers() -> None:
    body = request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [BOOK]}})
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    async with LocalFleet(library()) as fleet, fleet.http() as http:
        for accept in ("application/json, text/event-stream;q=0.1", "text/event-stream, application/json"):
            async with http.stream("POST", "/mcp", json=body, headers=headers | {"accept": accept}) as response:
                assert response.headers["content-type"] == "text/event-stream"
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        assert ACK in line
                        break


async def test_an_application_publishes_outside_of_calls_too() -> None:
    app = library()
    async with LocalFleet(app, edges=2) as fleet, at_every_edge(fleet, resourceSubscriptions=[BOOK]) as streams:
        app.publish(BOOK)
        await each(streams, lambda stream: stream.uris() == [BOOK])


async def test_a_uri_that_the_pool_does_not_serve_is_told_to_nobody() -> None:
    app = library()
    async with LocalFleet(app) as fleet, at_every_edge(fleet, resourceSubscriptions=["else://where", BOOK]) as [stream]:
        app.publish("else://where")
        app.publish(BOOK)
        await stream.told(2)
        assert stream.uris() == [BOOK]


@pytest.mark.rule("S15")
async def test_lists_that_change_while_the_application_is_served_are_told() -> None:
    """Adding and taking back at run time; a stream hears of those lists alone that it asked for."""
    app = library()

    async def renew(book: int) -> str:
        """Renew a book."""
        return f"renewed {book}"

    async with (
        LocalFleet(app, edges=2) as fleet,
        fleet.client(1) as client,
        at_every_edge(fleet, toolsListChanged=True, promptsListChanged=True) as streams,
    ):
        async with at_every_edge(fleet, resourcesListChanged=True) as others:
            app.tool()(renew)
            await each(streams, lambda stream: stream.kinds() == [ACK, changed("tools")])
            result = await client.call_tool("renew", {"book": 3})
            assert text(result) == "renewed 3"
            app.remove("tool", "renew")
            await each(streams, lambda stream: stream.kinds() == [ACK, changed("tools"), changed("tools")])
            names = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
            assert "renew" not in names
            app.remove("resource", "library://catalog")
            await each(others, lambda stream: stream.kinds() == [ACK, changed("resources")])
        for stream in streams:  # S7: prompts are not offered here
            assert stream.messages[0]["params"]["notifications"] == {"toolsListChanged": True}
            assert len(stream.messages) == 3


async def test_the_official_client_listens_and_sees_a_clean_end() -> None:
    """D1: the end that a draining edge gives its streams is what the client takes for a graceful close."""
    app = library()
    async with (
        LocalFleet(app) as fleet,
        fleet.client() as client,
        client.listen(tools_list_changed=True, resource_subscriptions=[BOOK]) as subscription,
    ):
        assert subscription.honored.tools_list_changed is True
        assert subscription.honored.resource_subscriptions == [BOOK]
        app.publish(BOOK)
        with anyio.fail_after(10):
            event = await anext(subscription)
            assert getattr(event, "uri", None) == BOOK
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fleet.edges[0].stop)
                with pytest.raises(StopAsyncIteration):
                    await anext(subscription)


@pytest.mark.rule("S17")
async def test_a_draining_edge_ends_its_streams_and_settles_new_ones_at_once() -> None:
    async with (
        LocalFleet(library(), environment={"MCPFLEET_LAME": "1.0"}) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", 3, toolsListChanged=True) as streams,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.edges[0].stop)
            await anyio.sleep(0.2)
            late = Listener("late")
            await late.run(http, "/mcp", {"toolsListChanged": True})
            assert late.kinds() == [ACK, END]
            assert [stream.kinds() for stream in streams] == [[ACK]] * 3
            await each(streams, lambda stream: stream.is_over)
        assert [stream.kinds() for stream in streams] == [[ACK, END]] * 3


@pytest.mark.rule("D6")
async def test_a_stream_of_which_nothing_is_honoured_is_acknowledged_and_ends() -> None:
    async with LocalFleet(library()) as fleet, fleet.http() as http:
        stream = Listener()
        await stream.run(http, "/mcp", {"promptsListChanged": True, "taskIds": ["a"]})
        assert stream.kinds() == [ACK, END]
        assert stream.messages[0]["params"]["notifications"] == {}


@pytest.mark.rule("N29", "T24")
async def test_streams_leave_half_of_the_connections_to_others() -> None:
    """Each holds its connection for a day: callers without names could take all that there are."""
    async with LocalFleet(library(), environment={"MCPFLEET_MAX_CONNECTIONS": "4"}) as fleet, fleet.http() as http:
        async with listening(http, "/mcp", toolsListChanged=True), listening(http, "/mcp", toolsListChanged=True):
            refused = Listener()
            with anyio.move_on_after(5):
                await refused.run(http, "/mcp", {"toolsListChanged": True})
            assert (refused.status, refused.messages) == (503, [])
        async with listening(http, "/mcp", toolsListChanged=True) as [stream]:
            assert stream.kinds() == [ACK]


@pytest.mark.rule("T19", "S18")
async def test_a_stream_beyond_the_edges_bound_is_refused_until_another_leaves() -> None:
    async with LocalFleet(library(), environment={"MCPFLEET_MAX_STREAMS": "1"}) as fleet, fleet.http() as http:
        async with listening(http, "/mcp", toolsListChanged=True):
            refused = Listener()
            await refused.run(http, "/mcp", {"toolsListChanged": True})
            assert (refused.status, refused.messages) == (503, [])

        async def opened() -> bool:
            stream = Listener()
            with anyio.move_on_after(0.2):
                await stream.run(http, "/mcp", {"toolsListChanged": True})
            return stream.kinds() == [ACK]

        with anyio.fail_after(5):
            while not await opened():  # noqa: ASYNC110  # the edge has no event of ours
                await anyio.sleep(0.01)


async def test_a_worker_that_lost_its_link_sends_again_what_may_not_have_arrived() -> None:
    app = library()
    async with LocalFleet(app, factor=5) as fleet, at_every_edge(fleet, resourceSubscriptions=[BOOK]) as [stream]:
        fleet.workers[0].cut()
        app.publish(BOOK)
        await until(lambda: fleet.lines("link lost"))
        fleet.workers[0].heal()
        await until(lambda: stream.uris() == [BOOK])


async def test_a_stream_keeps_no_room_for_the_request_that_opened_it() -> None:
    """A request with many long names takes room as any large body, and gives it back before the stream goes on."""
    uris = [f"library://books/{'1' * 1900}{number}" for number in range(200)]
    settings = {"MCPFLEET_REQUEST_ROOM": "400000", "MCPFLEET_QUEUE_WAIT": "1"}
    async with (
        LocalFleet(library(), environment=settings) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", 3, resourceSubscriptions=uris) as streams,
    ):
        assert [stream.kinds() for stream in streams] == [[ACK]] * 3
        honoured = [stream.messages[0]["params"]["notifications"]["resourceSubscriptions"] for stream in streams]
        assert honoured == [uris] * 3


@pytest.mark.rule("invariant 7")
async def test_what_streams_watch_has_a_bound_in_bytes() -> None:
    async with LocalFleet(library(), environment={"MCPFLEET_WATCHED_ROOM": "40"}) as fleet, fleet.http() as http:
        async with listening(http, "/mcp", 2, resourceSubscriptions=[BOOK]):
            refused = Listener()
            await refused.run(http, "/mcp", {"resourceSubscriptions": [BOOK]})
            assert refused.status == 503
        stream = Listener()
        with anyio.move_on_after(1):
            await stream.run(http, "/mcp", {"toolsListChanged": True})
        assert stream.kinds() == [ACK]
