"""The GET streams of sessions in a whole fleet: what changes is told once, whichever edge holds the stream."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.sessions import SessionRead, SessionsClient, session_key
from mcpfleet.contracts.tasks import Binding
from mcpfleet.edge.protocol.exchange import SessionRef
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.subscriptions.grants import GrantRepository, Heard, HeardAt
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import UPDATED, changed
from tests.contract.fleet.sessions_app import BOOK, asking, guarded
from tests.contract.fleet.test_stream_permission import revoke
from tests.contract.fleet.visitor import Visitor, Visitors, Watching
from tests.kit.waiting import pause, until


@asynccontextmanager
async def asking_as_an_edge(fleet: LocalFleet) -> AsyncIterator[SessionsClient]:
    """An edge's questions about sessions."""
    process = Process("edge", ProcessSettings())
    bus = bus_of(process, "edge", fleet.switch.connector("edge", process.settings, process=process.id))
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await bus.wait_up()
        yield SessionsClient(bus)
        tasks.cancel_scope.cancel()


async def told_until(visitor: Visitor, watching: Watching, book: int, edge: int = 0) -> None:
    """Change a book until a stream hears of it: it may not be its turn yet."""
    told = len(watching.uris())
    with anyio.fail_after(10):
        while len(watching.uris()) == told:
            await visitor.call("place_hold", {"book": book}, edge)
            await anyio.sleep(0.02)


async def listed(visitor: Visitor, name: str, edge: int = 1, *, is_there: bool = True) -> None:
    """List tools until one is there, or is there no more."""
    with anyio.fail_after(10):
        while True:
            names = [tool["name"] for tool in (await visitor.ask("tools/list", edge=edge))["result"]["tools"]]
            if (name in names) is is_there:
                return
            await pause()


@pytest.mark.rule("L11", "L9")
async def test_a_subscription_is_the_sessions_whichever_edge_was_asked() -> None:
    """The stream is at one edge, the subscription goes to another, the change comes from a third."""
    async with LocalFleet(asking(), edges=3) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.watching(0) as watching:
            await visitor.call("place_hold", {"book": 1}, 2)
            assert (await visitor.ask("resources/subscribe", {"uri": BOOK}, 1))["result"] == {}
            await visitor.call("place_hold", {"book": 2}, 2)
            await visitor.call("place_hold", {"book": 1}, 2)
            await until(lambda: watching.messages)
            assert watching.messages == [{"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": BOOK}}]
            assert (await visitor.ask("resources/subscribe", {"uri": BOOK}, 2))["result"] == {}, "again"
            assert (await visitor.ask("resources/unsubscribe", {"uri": BOOK}, 2))["result"] == {}
            assert (await visitor.ask("resources/unsubscribe", {"uri": BOOK}, 1))["result"] == {}
            await visitor.ask("resources/subscribe", {"uri": "library://books/3"}, 1)
            await visitor.call("place_hold", {"book": 1}, 2)
            await visitor.call("place_hold", {"book": 3}, 2)
            await until(lambda: len(watching.messages) > 1)
        assert watching.uris() == [BOOK, "library://books/3"]


@pytest.mark.rule("L11")
async def test_what_is_not_there_cannot_be_subscribed_to() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        error = (await visitor.ask("resources/subscribe", {"uri": "library://nothing"}))["error"]
        assert error["code"] == -32002
        assert (await visitor.ask("resources/subscribe", {}))["error"]["code"] == -32602


LEVEL = {"level": "debug"}


@pytest.mark.rule("L13")
async def test_a_change_is_told_on_the_newest_stream_alone() -> None:
    """N10: a session has two streams; the third ends the first, and the end of the newest lets the one before speak."""
    app = asking()
    async with LocalFleet(app, edges=3) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        async with visitor.watching(0) as first, visitor.watching(1) as second:
            async with visitor.watching(2) as third:
                await until(lambda: first.is_over)
                await visitor.call("place_hold", {"book": 1}, 1)
                await until(lambda: third.uris() == [BOOK])
                app.tool("later", description="A new one.")(lambda: "here")
                await until(lambda: third.kinds() == [UPDATED, changed("tools")])
                assert second.uris() == []
            await told_until(visitor, second, 1, 2)  # its turn
            assert first.uris() == []
            assert changed("tools") not in second.kinds()


@pytest.mark.rule("L13")
async def test_what_changes_between_two_streams_is_told_on_the_next() -> None:
    """And a first stream is told nothing that did not change."""
    app = asking()
    async with LocalFleet(app, edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.watching(0) as first:
            app.tool("later", description="A new one.")(lambda: "here")
            await until(lambda: first.kinds() == [changed("tools")])
        app.remove("tool", "later")
        await listed(visitor, "later", is_there=False)  # it knows that now, and is told of the next change
        app.tool("later", description="A new one.")(lambda: "here")
        async with visitor.watching(1) as second:
            await until(lambda: second.kinds() == [changed("tools")])
        async with visitor.watching(1) as third:
            await visitor.call("chat", edge=1)
        assert third.kinds() == []


@pytest.mark.rule("L10")
async def test_a_get_stream_has_no_event_ids_and_tells_again_what_may_have_changed() -> None:
    """Its first event is what the client may have missed, with whichever `Last-Event-ID` it comes."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        for last in ({}, {"last-event-id": "7"}):
            await visitor.call("place_hold", {"book": 1})
            headers = visitor.headers(accept="text/event-stream") | last
            async with visitors.https[0].stream("GET", "/mcp", headers=headers, timeout=10) as response:
                lines = []
                async for line in response.aiter_lines():
                    lines.append(line)
                    if line.startswith("data: "):
                        break
            assert UPDATED in lines[-1]
            assert not [line for line in lines if line.startswith(("id", "retry")) or line == "data:"]


@pytest.mark.rule("L9")
async def test_a_stream_needs_an_admission_of_its_own() -> None:
    """A session's id admits nobody (L18), and the permission of who opens a stream is that of its credential."""
    async with guarded([{"token": "ann-1", "subject": "ann", "audience": "mcp"}]) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        get = visitor.headers(accept="text/event-stream")
        del get["authorization"]
        refused = await visitors.https[1].get("/mcp", headers=get)
        assert refused.status_code == 401
        assert "www-authenticate" in refused.headers
        assert (await visitors.https[1].delete("/mcp", headers=get)).status_code == 401


@pytest.mark.rule("L13")
async def test_a_session_may_subscribe_to_more_than_may_wait_for_a_stream() -> None:
    """Each URI that may have changed before the stream is told, and their number ends no stream."""
    async with LocalFleet(asking(), environment={"MCPFLEET_STREAM_PENDING": "4"}) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        books = [f"library://books/{number}" for number in range(12)]
        for book in books:
            assert (await visitor.ask("resources/subscribe", {"uri": book}))["result"] == {}
        for number in range(12):
            await visitor.call("place_hold", {"book": number})
        async with visitor.watching() as watching:
            await until(lambda: sorted(watching.uris()) == sorted(books))
            await visitor.call("place_hold", {"book": 11})
            await until(lambda: len(watching.uris()) == 13)


@pytest.mark.rule("L13", "X59")
async def test_changes_that_are_marked_while_a_stream_opens_are_told_and_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The edge reads the marks of the session before the stream that opens has taken what it read itself."""
    has_opened, note, change = anyio.Event(), GrantRepository.note, SessionCache.change

    async def note_later(self: GrantRepository, heard: Mapping[Heard, HeardAt]) -> list[str]:
        await has_opened.wait()
        return await note(self, heard)

    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        assert visitor.session is not None
        key = session_key(visitor.session)

        async def change_slowly(self: SessionCache, ref: SessionRef, **changes: Any) -> SessionRead:
            read = await change(self, ref, **changes)
            if "opened" in changes:
                has_opened.set()
                everywhere = [each for each in gc.get_objects() if isinstance(each, SessionStreams)]
                [streams] = [each for each in everywhere if key in each._local]  # others are of fleets that have ended
                await until(lambda: streams._local[key].turn.statistics().tasks_waiting > 0)
            return read

        monkeypatch.setattr(GrantRepository, "note", note_later)
        monkeypatch.setattr(SessionCache, "change", change_slowly)
        await visitor.call("place_hold", {"book": 1})
        owner = Binding(endpoint="mcp").digest
        async with visitor.watching() as watching, asking_as_an_edge(fleet) as sessions:
            await until(lambda: watching.uris() == [BOOK])
            is_marked = True
            with anyio.fail_after(10):
                while is_marked:
                    session = await sessions.read(key, owner)
                    is_marked = session is None or any(each.dirty for each in session.grants)
                    await pause()
            assert watching.uris() == [BOOK]


@pytest.mark.rule("L13")
async def test_what_changes_before_the_first_stream_is_told_on_it() -> None:
    """A list is compared with what it was as the session began."""
    app = asking()
    async with LocalFleet(app, edges=2) as fleet, Visitors(fleet) as visitors:
        visitor, other = await visitors.one(), await visitors.one()
        app.tool("later", description="A new one.")(lambda: "here")
        await listed(other, "later")
        async with visitor.watching(1) as watching:
            await until(lambda: watching.kinds() == [changed("tools")])


@pytest.mark.rule("L12")
async def test_who_is_revoked_loses_the_session_and_is_told_nothing_more() -> None:
    """L14: from the revocation on nothing is written."""
    tokens = [{"token": "ann-1", "subject": "ann", "audience": "mcp"}]
    async with guarded(tokens) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        watching = Watching()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(visitor.watch, watching, 1)
            await until(lambda: watching.status == 200)
            assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
            await revoke(fleet, "ann")
            await until(lambda: watching.is_over)
        assert watching.messages == []
        async with asking_as_an_edge(fleet) as sessions:
            owner = Binding(endpoint="mcp", subject="ann").digest
            assert visitor.session is not None
            with anyio.fail_after(5):
                while await sessions.read(session_key(visitor.session), owner) is not None:
                    await pause()


@pytest.mark.rule("L9", "L12")
async def test_a_stream_ends_with_its_credential_and_the_session_goes_on_with_a_newer_one() -> None:
    """An old credential is no denial."""
    ends = datetime.now(UTC) + timedelta(seconds=3)
    entry = {"subject": "ann", "audience": "mcp"}
    tokens = [{"token": "ann-1", "expires": ends.isoformat()} | entry, {"token": "ann-2"} | entry]
    async with guarded(tokens) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        async with visitor.watching(1) as watching:
            await until(lambda: watching.is_over)
            assert datetime.now(UTC) > ends - timedelta(seconds=1)
        visitor.token = "ann-2"
        async with visitor.watching(1) as again:
            assert not again.is_over
            assert (await visitor.ask("ping"))["result"] == {}


async def test_sessions_go_on_while_subscriptions_is_away() -> None:
    """Streams and calls do, by what an edge knows; what would begin or change one is refused for a while."""
    environment = {"MCPFLEET_SESSION_KEPT": "0.1"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        async with visitor.watching(0) as watching:
            await told_until(visitor, watching, 1)
            await visitor.call("place_hold", {"book": 2})
            await fleet.subscriptions.kill()
            told = len(watching.uris())
            await visitor.call("place_hold", {"book": 1})
            await until(lambda: len(watching.uris()) > told)
            assert set(watching.uris()) == {BOOK}
            refused = await visitor.send({"jsonrpc": "2.0", "id": 9, "method": "logging/setLevel", "params": LEVEL})
            assert (refused.status_code, refused.json()["error"]["code"]) == (504, -32603)
            unknown = await visitor.send({"jsonrpc": "2.0", "id": 9, "method": "ping"}, 1)
            assert unknown.status_code == 504, "this edge never knew the session"
            params = {"protocolVersion": visitor.version, "capabilities": {}, "clientInfo": {}}
            begun = await visitor.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            assert begun.status_code == 503
            assert "retry-after" in begun.headers
            assert not watching.is_over
