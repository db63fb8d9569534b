"""An App includes Routers while a fleet serves it: clients hear of their tools, call them, and read by them."""

from __future__ import annotations

from mcp_types import TextContent

from mcpfleet.app import App, CallNext, Invocation, Router
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import ACK, changed
from tests.contract.fleet.test_streams import at_every_edge
from tests.kit.waiting import until


def library() -> App:
    app = App("library", version="1.0.0")

    @app.tool()
    async def search(query: str) -> str:
        """Search."""
        return query

    return app


def billing() -> Router:
    router = Router()

    @router.interceptor
    async def twice(invocation: Invocation, call_next: CallNext) -> str:
        return f"{await call_next(invocation)} {invocation.name}"

    @router.tool()
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @router.prompt()
    async def remind(name: str) -> str:
        """Remind somebody."""
        return f"Remind {name}."

    @router.resource("billing://terms")
    async def terms() -> str:
        """The terms."""
        return "14 days"

    return router


async def test_a_router_that_is_included_while_the_app_is_served_is_told_listed_and_called() -> None:
    app, router = library(), billing()
    async with (
        LocalFleet(app) as fleet,
        at_every_edge(fleet, toolsListChanged=True) as [stream],
        fleet.client() as client,
    ):
        app.include(router, prefix="billing_")
        await until(lambda: stream.kinds() == [ACK, changed("tools")])
        listed = (await client.list_tools(cache_mode="refresh")).tools
        assert [tool.name for tool in listed] == ["billing_pay", "search"]
        [text] = (await client.call_tool("billing_pay", {"amount": 3})).content
        assert isinstance(text, TextContent)
        assert text.text == "paid 3 billing_pay"
        [message] = (await client.get_prompt("billing_remind", {"name": "Ann"})).messages
        assert "Ann" in str(message.content)
        [body] = (await client.read_resource("billing://terms")).contents
        assert "14 days" in str(body)


async def test_what_a_router_declares_and_publishes_reaches_the_clients_of_its_app() -> None:
    app, router = library(), billing()
    app.include(router)
    async with (
        LocalFleet(app) as fleet,
        at_every_edge(fleet, toolsListChanged=True, resourceSubscriptions=["billing://terms"]) as [stream],
        fleet.client() as client,
    ):
        router.tool("refund")(lambda: "refunded")
        await until(lambda: stream.kinds() == [ACK, changed("tools")])
        [text] = (await client.call_tool("refund", {})).content
        assert "refunded" in str(text)
        router.publish("billing://terms")
        await until(lambda: len(stream.kinds()) == 3)
