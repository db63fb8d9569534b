"""An App's description of its server, from its arguments to clients of both eras."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.app import App, Context
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.visitor import Visitors


@pytest.mark.rule("X66")
async def test_an_app_without_logs_drops_what_handlers_log_and_says_so_once() -> None:
    app = App("library", version="1.0.0", logs=False)

    @app.tool()
    async def chat(ctx: Context) -> str:
        """Say what is done."""
        await ctx.log("error", "lost")
        return "said"

    async with LocalFleet(app) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        assert (await visitor.ask("logging/setLevel", {"level": "debug"}))["error"]["code"] == -32601
        for _ in range(2):
            assert (await visitor.call("chat"))["content"][0]["text"] == "said"
        assert visitor.told == []
        (line,) = fleet.lines("log message dropped")
    assert (line["wanted"], line["why"]) == ("error", "App(logs=False)")


@pytest.mark.rule("X65", "X74")
async def test_a_client_reads_the_description_and_the_ttls() -> None:
    app = App("library", version="1", description="Lends books.", website_url="https://a.example", ttl={"tools": 33.0})

    @app.tool()
    async def read() -> str:
        """Read."""
        return "read"

    @app.resources(ttl=44)
    async def shelf() -> list[Any]:
        """List nothing."""
        return []

    async with LocalFleet(app) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(capabilities={})
        server = (await visitor.begin())["serverInfo"]
        assert (server["description"], server["websiteUrl"]) == ("Lends books.", "https://a.example")
        async with fleet.client() as client:
            assert client.server_info is not None
            assert client.server_info.description == "Lends books."
            assert (await client.list_tools()).ttl_ms == 33_000
            assert (await client.list_resources()).ttl_ms == 44_000
