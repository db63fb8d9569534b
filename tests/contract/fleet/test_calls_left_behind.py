"""Calls of sessions whose client has left: they go on, and their ids live until they end (P9, L19).

The Go SDK and rmcp close the POST of a request that is cancelled, and then send `notifications/cancelled`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

import anyio
import pytest

from mcpfleet.app import App, Context
from mcpfleet.edge.sessions.in_flight import InFlightRequests
from mcpfleet.testing.local import LocalFleet
from tests.chaos.streams import alive
from tests.contract.fleet.sessions_app import Wish
from tests.contract.fleet.test_sessions import said
from tests.contract.fleet.visitor import FORM, Visitor, Visitors
from tests.kit.waiting import until

NOTICED: Final = 0.15
"""Seconds after which an edge knows that a client has left: it does not watch in a call's first tenth of a second."""
PROGRESS: Final = {"progressToken": "t"}
WAIT: Final = {"name": "wait", "arguments": {"name": "a"}}
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Works:
    """Notes what the application's handlers do, and says when they may end."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.ended: list[str] = []
        self.may_end = anyio.Event()

    async def do(self, name: str) -> str:
        """Work until told that it is enough."""
        self.started.append(name)
        try:
            await self.may_end.wait()
        except BaseException:
            self.stopped.append(name)
            raise
        self.ended.append(name)
        return name

    def app(self) -> App:
        """Make the application."""
        app = App("library", version="1.0.0")

        @app.tool(timeout=30)
        async def wait(name: str) -> str:
            return await self.do(name)

        @app.tool(timeout=30)
        async def report(ctx: Context) -> str:
            await ctx.progress(1)
            return await self.do("report")

        @app.tool(timeout=30, idempotency_key="key", on_disconnect="cancel")
        async def reserve(key: str) -> str:
            return await self.do(key)

        @app.tool(timeout=30, on_disconnect="continue")
        async def insist() -> str:
            return await self.do("insist")

        @app.tool(asks={"elicitation.form"})
        async def order(ctx: Context) -> str:
            await self.do("order")
            wish = await ctx.elicit("How many?", Wish)
            return str(wish.copies)

        @app.resource("library://slow/{name}")
        async def slow(name: str) -> str:
            return await self.do(name)

        @app.prompt()
        async def ponder() -> str:
            return await self.do("ponder")

        return app


@asynccontextmanager
async def visited(works: Works, environment: Mapping[str, str] = NOTHING) -> AsyncIterator[tuple[LocalFleet, Visitor]]:
    """A fleet of two edges, and a client with a session."""
    async with LocalFleet(works.app(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        yield fleet, await visitors.one()


@asynccontextmanager
async def leaving(
    visitor: Visitor,
    works: Works,
    method: str = "tools/call",
    params: Any = WAIT,
    *,
    begun: Callable[[], object] | None = None,
) -> AsyncIterator[None]:
    """Ask at edge 0 under the id `mine`, and close the POST once the handler has begun."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(visitor.ask, method, params, 0, "mine")
        await until(begun or (lambda: works.started))
        tasks.cancel_scope.cancel()
    await anyio.sleep(NOTICED)
    assert not works.stopped
    yield


async def cancel(visitor: Visitor, edge: int) -> None:
    assert (await visitor.notify("notifications/cancelled", {"requestId": "mine"}, edge)).status_code == 202


def open_requests() -> int:
    """The ids that edges know as running."""
    return sum(len(requests) for each in alive(InFlightRequests) for requests in each._open.values())


LONG: Final = [
    pytest.param("tools/call", WAIT, id="a tool"),
    pytest.param("tools/call", {"name": "report", "arguments": {}, "_meta": PROGRESS}, id="a tool that streams"),
    pytest.param("resources/read", {"uri": "library://slow/a"}, id="a resource"),
    pytest.param("prompts/get", {"name": "ponder"}, id="a prompt"),
]


@pytest.mark.rule("L19", "X60")
@pytest.mark.parametrize(("method", "params"), LONG)
@pytest.mark.parametrize("edge", [0, 1])
async def test_a_cancel_that_follows_the_closed_post_stops_the_call(method: str, params: Any, edge: int) -> None:
    """At any edge."""
    works = Works()
    async with visited(works) as (_, visitor):
        async with leaving(visitor, works, method, params):
            await cancel(visitor, edge)
            await until(lambda: works.stopped)
            await until(lambda: open_requests() == 0)
        assert not works.ended


@pytest.mark.rule("L19", "X60")
@pytest.mark.parametrize("edge", [0, 1])
async def test_a_delete_that_follows_the_closed_post_stops_the_call(edge: int) -> None:
    """L8: at any edge."""
    works = Works()
    async with visited(works) as (_, visitor), leaving(visitor, works):
        assert await visitor.delete(edge) == 204
        await until(lambda: works.stopped)


@pytest.mark.rule("L8")
async def test_a_call_whose_client_has_left_ends_with_its_session() -> None:
    environment = {"MCPFLEET_SESSION_LASTS": "1", "MCPFLEET_SUBSCRIPTIONS_SWEEP": "0.1"}
    works = Works()
    async with LocalFleet(works.app(), environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with leaving(visitor, works):
            await until(lambda: works.stopped)


@pytest.mark.rule("L19", "X60")
async def test_an_id_lives_until_its_call_ends_and_is_free_then() -> None:
    """P9: the handler ends by itself, though nobody hears what it returns."""
    works = Works()
    async with visited(works) as (_, visitor), leaving(visitor, works):
        again = await visitor.ask("ping", identifier="mine")
        assert again["error"]["code"] == -32600
        assert (await visitor.ask("ping", identifier="other"))["result"] == {}
        works.may_end.set()
        await until(lambda: open_requests() == 0)
        assert works.ended == ["a"]
        assert (await visitor.ask("ping", identifier="mine"))["result"] == {}


@pytest.mark.rule("L7")
async def test_a_cancel_of_what_has_ended_meanwhile_means_nothing() -> None:
    works = Works()
    async with visited(works) as (_, visitor):
        async with leaving(visitor, works):
            works.may_end.set()
            await until(lambda: open_requests() == 0)
            await cancel(visitor, 1)
            assert said(await visitor.call("wait", {"name": "b"})) == "b"
        assert works.stopped == []


@pytest.mark.rule("L19")
async def test_a_call_that_waits_for_room_may_be_taken_back_though_its_client_has_left() -> None:
    """It keeps its place in the line, and never begins."""
    environment = {"MCPFLEET_SLOTS": "1", "MCPFLEET_QUEUE": "0", "MCPFLEET_QUEUE_WAIT": "30"}
    works = Works()
    async with LocalFleet(works.app(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor, first = await visitors.one(), await visitors.one()
        async with first.calling("wait", {"name": "first"}, 1) as results:
            await until(lambda: works.started == ["first"])
            params = {"name": "wait", "arguments": {"name": "second"}}
            async with leaving(visitor, works, "tools/call", params, begun=lambda: open_requests() == 2):
                assert open_requests() == 2
                await cancel(visitor, 1)
                await until(lambda: open_requests() == 1)
                works.may_end.set()
        assert said(results[0]) == "first"
        assert works.started == ["first"]


@pytest.mark.rule("P9")
async def test_a_call_that_waits_for_room_goes_on_though_its_client_has_left() -> None:
    environment = {"MCPFLEET_SLOTS": "1", "MCPFLEET_QUEUE": "0", "MCPFLEET_QUEUE_WAIT": "30"}
    works = Works()
    async with LocalFleet(works.app(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor, first = await visitors.one(), await visitors.one()
        async with first.calling("wait", {"name": "first"}, 1):
            await until(lambda: works.started == ["first"])
            params = {"name": "wait", "arguments": {"name": "second"}}
            async with leaving(visitor, works, "tools/call", params, begun=lambda: open_requests() == 2):
                works.may_end.set()
                await until(lambda: works.ended == ["first", "second"])


@pytest.mark.rule("I3")
async def test_a_key_is_uncertain_once_its_call_is_taken_back_after_its_client_left() -> None:
    works = Works()
    async with visited(works) as (_, visitor):
        async with leaving(visitor, works, "tools/call", {"name": "reserve", "arguments": {"key": "k"}}):
            await cancel(visitor, 1)
            await until(lambda: works.stopped)
            await until(lambda: open_requests() == 0)
        with anyio.fail_after(10):
            assert "unknown" in said(await visitor.call("reserve", {"key": "k"}))


@pytest.mark.rule("I2")
async def test_a_key_whose_client_has_left_gives_its_result_to_a_repeat() -> None:
    works = Works()
    async with visited(works) as (_, visitor):
        async with leaving(visitor, works, "tools/call", {"name": "reserve", "arguments": {"key": "k"}}):
            works.may_end.set()
            assert said(await visitor.call("reserve", {"key": "k"}, 1)) == "k"
        assert works.started == ["k"]


@pytest.mark.rule("D12")
async def test_a_tool_that_goes_on_in_any_case_is_not_stopped_by_a_cancel() -> None:
    works = Works()
    async with visited(works) as (_, visitor):
        async with leaving(visitor, works, "tools/call", {"name": "insist", "arguments": {}}):
            await cancel(visitor, 1)
            await until(lambda: open_requests() == 0)
            works.may_end.set()
            await until(lambda: works.ended == ["insist"])
        assert works.stopped == []


@pytest.mark.rule("M81")
async def test_a_question_that_nobody_is_left_to_be_asked_ends_the_call() -> None:
    works = Works()
    async with visited(works) as (_, visitor):
        async with leaving(visitor, works, "tools/call", {"name": "order", "arguments": {}}):
            works.may_end.set()
            await until(lambda: open_requests() == 0)
        visitor.answers = {"elicitation/create": FORM}
        assert said(await visitor.call("order")) == "3"


@pytest.mark.rule("M81")
async def test_a_client_that_leaves_while_it_is_asked_ends_the_call() -> None:
    works = Works()
    works.may_end.set()
    async with visited(works) as (_, visitor):
        params = {"name": "order", "arguments": {}}
        async with leaving(visitor, works, "tools/call", params, begun=lambda: visitor.asked):
            await until(lambda: open_requests() == 0)


@pytest.mark.rule("L15")
async def test_a_progress_token_is_in_use_until_its_call_ends_without_its_client() -> None:
    works = Works()
    async with visited(works) as (_, visitor):
        params = {"name": "report", "arguments": {}, "_meta": PROGRESS}
        async with leaving(visitor, works, "tools/call", params):
            before = len(visitor.told)
            works.may_end.set()
            await until(lambda: open_requests() == 0)
            await visitor.call("report", _meta=PROGRESS)
            assert len(visitor.told) == before + 1


@pytest.mark.rule("P7")
async def test_a_draining_edge_finishes_a_call_whose_client_has_left() -> None:
    environment = {"MCPFLEET_LAME": "0"}
    works = Works()
    async with visited(works, environment) as (fleet, visitor):
        async with leaving(visitor, works), anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.edges[0].stop)
            await until(fleet.edges[0].process.stopping.is_set)
            works.may_end.set()
        assert (works.ended, works.stopped) == (["a"], [])
