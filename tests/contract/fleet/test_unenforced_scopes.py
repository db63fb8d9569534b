"""Scopes that nobody enforces, since no caller is identified: a warning on one host, a refusal beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError

from mcpfleet.app import App
from mcpfleet.edge.catalog.snapshot_cache import REFUSED, UNENFORCED
from mcpfleet.testing.local import LocalFleet
from tests.kit.waiting import until


def shop() -> App:
    app = App("shop", version="1")

    @app.tool()
    async def look() -> str:
        """Look."""
        return "looked"

    @app.tool(scopes=["orders:write"])
    async def order() -> str:
        """Order."""
        return "ordered"

    return app


@pytest.mark.rule("M91")
async def test_on_one_host_a_tool_with_scopes_works_and_each_edge_warns_once() -> None:
    app = shop()
    async with LocalFleet(app) as fleet, fleet.client() as client:
        assert "ordered" in str(await client.call_tool("order", {}))
        [line] = fleet.lines(UNENFORCED)
        assert (line["level"], line["definitions"]) == ("warning", "order")
        assert line["why"] == "MCPFLEET_AUTHORIZATION is none"
        app.tool("more")(lambda: "more")  # another snapshot, and nothing new to say
        await until(lambda: fleet.lines("snapshot taken")[-1]["definitions"] == 3)
        assert len(fleet.lines(UNENFORCED)) == 1
        assert fleet.lines(REFUSED) == []


@pytest.mark.rule("M91")
@pytest.mark.parametrize(
    "exposed",
    [
        pytest.param({"MCPFLEET_PUBLIC_HOSTS": "localhost:9,mcp.example.com"}, id="a public host"),
        pytest.param({"MCPFLEET_PUBLIC_URL": "https://mcp.example.com"}, id="a public URL"),
        pytest.param(
            {"MCPFLEET_BIND": ":8000", "MCPFLEET_ALLOW_ANONYMOUS": "true", "MCPFLEET_PUBLIC_HOSTS": "localhost"},
            id="every address",
        ),
    ],
)
async def test_where_others_may_call_a_tool_with_scopes_does_not_exist(exposed: dict[str, str]) -> None:
    async with LocalFleet(shop(), environment=exposed) as fleet, fleet.client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["look"]
        errors: list[Any] = []
        for name in ("order", "nosuch"):
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name, {})
            errors.append((caught.value.error.code, caught.value.error.message.replace(name, "NAME")))
        assert errors[0] == errors[1]
        assert "looked" in str(await client.call_tool("look", {}))
        [line] = fleet.lines(REFUSED)
        assert (line["level"], line["definitions"]) == ("error", "order")


async def test_loopbacks_own_names_expose_nothing() -> None:
    names = {"MCPFLEET_PUBLIC_HOSTS": "localhost,127.0.0.1:8000", "MCPFLEET_PUBLIC_URL": "http://localhost:8000"}
    async with LocalFleet(shop(), environment=names) as fleet, fleet.client() as client:
        assert "ordered" in str(await client.call_tool("order", {}))
        assert len(fleet.lines(UNENFORCED)) == 1
