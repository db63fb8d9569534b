"""Lifespans in a fleet: entered before a worker announces itself, left after its last handler, told when they fail."""

import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio
import anyio.lowlevel
import pytest
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from mcpfleet.app import App, Context, Depends, Lifespan, ToolError
from mcpfleet.app.lifespan import LifespanFailed
from mcpfleet.testing.local import LocalFleet
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

pytestmark = pytest.mark.rule("X68")
FORM = {"type": "object", "properties": {"city": {"type": "string"}}}


class Stock:
    """What the lifespan below holds; its events are told in their order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.release = threading.Event()


def app_of(stock: Stock) -> App:
    app = App("test", version="1")

    @app.lifespan
    async def opened() -> AsyncIterator[Stock]:
        stock.events.append("entered")
        yield stock
        await anyio.lowlevel.checkpoint()
        stock.events.append("left")

    async def connection(held: Lifespan[Stock]) -> AsyncIterator[list[str]]:
        held.events.append("opened")
        try:
            yield held.events
        finally:
            held.events.append("closed")

    @app.tool()
    async def count(events: Annotated[list[str], Depends(connection)]) -> int:
        """Count what has happened."""
        return len(events)

    @app.tool()
    async def hold(held: Lifespan[Stock]) -> str:
        """Return once released."""
        held.events.append("held")
        try:
            await until(held.release.is_set, within=30)
        except BaseException:
            held.events.append("cancelled")
            raise
        held.events.append("released")
        return "done"

    @app.tool()
    async def ask(events: Annotated[list[str], Depends(connection)], ctx: Context) -> str:
        """Ask, and so run twice from the top."""
        return str((await ctx.elicit("Where?", FORM, key="where"))["city"])

    return app


async def test_a_lifespan_is_entered_before_the_first_call_and_left_after_the_last() -> None:
    stock = Stock()
    async with LocalFleet(app_of(stock)) as fleet:
        assert stock.events == ["entered"]
        async with fleet.client() as client:
            assert (await client.call_tool("count")).structured_content == 2
    assert stock.events == ["entered", "opened", "closed", "left"]


async def test_each_worker_enters_its_own() -> None:
    stock = Stock()
    async with LocalFleet(app_of(stock), workers=2):
        assert stock.events == ["entered", "entered"]
    assert stock.events.count("left") == 2


async def test_a_lifespan_is_left_only_once_the_last_handler_has_returned() -> None:
    stock = Stock()
    async with LocalFleet(app_of(stock)) as fleet, fleet.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "hold")
        await until(lambda: "held" in stock.events)
        fleet.workers[0].process.stopping.set()
        await until(lambda: fleet.lines("stopped taking calls"))
        stock.events.append("draining")
        stock.release.set()
        await fleet.workers[0].ended.wait()
    assert stock.events == ["entered", "held", "draining", "released", "left"]


async def test_handlers_that_outlast_the_drain_are_cancelled_before_the_lifespan_is_left() -> None:
    stock = Stock()
    environment = {"MCPFLEET_DRAIN": "0.2"}
    fleet = LocalFleet(app_of(stock), environment=environment)
    async with fleet, fleet.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "hold")
        await until(lambda: "held" in stock.events)
        await fleet.workers[0].stop()
    assert stock.events == ["entered", "held", "cancelled", "left"]


async def test_a_lifespan_that_cannot_be_entered_keeps_its_worker_from_announcing_itself() -> None:
    app = App("test", version="1")

    @app.lifespan
    async def failing() -> AsyncIterator[None]:
        await refuse()
        yield

    async def refuse() -> None:
        raise ConnectionRefusedError("no database")

    fleet = LocalFleet(app)
    with pytest.raises(
        LifespanFailed, match=r"failing \(.*test_lifespans\.py:\d+\) failed: ConnectionRefusedError: no d"
    ):
        await fleet.__aenter__()
    [line] = fleet.lines("lifespan failed")
    assert "failing (" in line["error"]
    assert fleet.lines("announced") == []


async def test_a_lifespan_that_fails_while_it_is_held_ends_the_worker_after_its_calls() -> None:
    stock = Stock()
    app, called = App("test", version="1"), threading.Event()

    async def fail() -> None:
        await until(called.is_set)
        raise ConnectionResetError("the feed has ended")

    @app.lifespan
    async def feed() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            yield

    @app.tool()
    async def hold() -> str:
        """Outlast the feed."""
        called.set()
        await until(lambda: fleet.lines("stopped taking calls"))
        stock.events.append("returned")
        return "done"

    async def outlast() -> None:
        async with fleet, fleet.client() as client:
            assert not (await client.call_tool("hold")).is_error
            await fleet.workers[0].ended.wait()

    fleet = LocalFleet(app)
    with pytest.raises(LifespanFailed, match=r"feed .* failed: ConnectionResetError: the feed has ended"):
        await outlast()
    assert stock.events == ["returned"]
    assert len(fleet.lines("lifespan failed")) == 1


async def test_a_lifespan_that_cannot_be_left_is_told_after_the_drain() -> None:
    app = App("test", version="1")

    @app.lifespan
    async def leaving() -> AsyncIterator[None]:
        yield
        raise OSError("not flushed")

    with pytest.raises(LifespanFailed, match=r"leaving .* failed: OSError: not flushed"):
        async with LocalFleet(app):
            pass


async def test_a_worker_may_be_stopped_while_it_enters_a_lifespan() -> None:
    app = App("test", version="1")
    events: list[str] = []

    @app.lifespan
    async def slow() -> AsyncIterator[None]:
        events.append("entering")
        try:
            await anyio.sleep_forever()
        finally:
            events.append("cancelled")
        yield

    async with LocalFleet(App("test", version="1")) as fleet:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.add_worker, app)
            await until(lambda: events == ["entering"])
            await fleet.workers[1].stop()
        assert fleet.workers[1].error is None
    assert events == ["entering", "cancelled"]


async def test_a_test_lets_another_lifespan_stand_for_one() -> None:
    stock = Stock()
    app = app_of(Stock())
    opened = app.declared.scope.lifespan
    assert opened is not None

    async def fake() -> AsyncIterator[Stock]:
        stock.events.append("fake")
        yield stock

    with app.override(opened.function, fake):
        async with LocalFleet(app) as fleet, fleet.client() as client:
            await client.call_tool("count")
    assert stock.events == ["fake", "opened", "closed"]


async def test_dependencies_are_opened_and_closed_in_each_run_of_a_handler_that_asks() -> None:
    stock = Stock()

    async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"city": "Oslo"})

    async with LocalFleet(app_of(stock)) as fleet, fleet.client(elicitation_callback=fill_in) as client:
        result = await client.call_tool("ask")
    assert "Oslo" in str(result.content)
    assert stock.events == ["entered", *["opened", "closed"] * 2, "left"]


async def test_a_task_takes_dependencies_and_the_lifespans_value() -> None:
    stock = Stock()
    app = app_of(stock)

    async def connection(held: Lifespan[Stock], ctx: Context) -> AsyncIterator[str]:
        held.events.append(f"opened in a task: {ctx.is_task}")
        yield "connected"
        held.events.append("closed")

    @app.tool(task="required")
    async def later(word: Annotated[str, Depends(connection)]) -> str:
        """Run as a task."""
        return word

    async with LocalFleet(app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        created = await client.call("later", {})
        done = await client.until(created["taskId"])
    assert text_of(done) == "connected"
    assert stock.events == ["entered", "opened in a task: True", "closed", "left"]


@pytest.mark.rule("D19")
async def test_a_call_whose_dependency_refuses_leaves_its_key_free() -> None:
    app, days = App("test", version="1"), ["monday", "friday"]

    def opened() -> str:
        day = days.pop(0)
        if day == "monday":
            raise ToolError("closed")
        return day

    @app.tool(idempotency_key="request")
    async def reserve(request: str, day: Annotated[str, Depends(opened)]) -> str:
        """Reserve."""
        return day

    async with LocalFleet(app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        answers = [await client.call("reserve", {"request": "r1"}) for _ in range(2)]
    assert [answer["content"][0]["text"] for answer in answers] == ["closed", "friday"]


async def test_a_handler_that_hides_its_cancel_keeps_the_lifespan_from_being_left() -> None:
    stock = Stock()
    app = app_of(stock)

    @app.tool()
    async def stuck() -> str:
        """Return once released."""
        stock.events.append("stuck")
        while not stock.release.is_set():
            with suppress(BaseException):
                await anyio.sleep(0.05)
        return "done"

    async def stop_it() -> None:
        async with fleet, fleet.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "stuck")
            await until(lambda: "stuck" in stock.events)
            await fleet.workers[0].stop()

    fleet = LocalFleet(app, environment={"MCPFLEET_DRAIN": "0.2"})
    with pytest.raises(LifespanFailed, match="was not left: a handler does not end"):
        await stop_it()
    assert "left" not in stock.events
    stock.release.set()


async def test_tools_without_description_are_one_warning_at_the_start() -> None:
    app = App("test", version="1")

    async def silent() -> None: ...

    async def told() -> None:
        """Say so."""

    app.tool()(silent)
    app.tool("mute")(silent)
    app.tool()(told)
    async with LocalFleet(app) as fleet:
        [line] = fleet.lines("tools without description")
        assert line["tools"] == ["mute", "silent"]
