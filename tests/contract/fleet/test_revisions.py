"""Declarations for some revisions of MCP, from the decorator to official clients."""

from __future__ import annotations

from typing import Literal

import pytest

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet


def revised() -> App:
    app = App("library", version="1.0.0")

    @app.tool(revisions={"2026-07-28"})
    async def new() -> str:
        """Exist for modern clients."""
        return "new"

    @app.tool(revisions={"2025-11-25", "2025-06-18"})
    async def old() -> str:
        """Exist for clients of 2025."""
        return "old"

    return app


@pytest.mark.rule("X61")
@pytest.mark.parametrize(("mode", "name"), [("auto", "new"), ("legacy", "old")])
async def test_a_client_gets_the_tools_of_its_revision(mode: Literal["auto", "legacy"], name: str) -> None:
    async with LocalFleet(revised()) as fleet, fleet.client(mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [name]
        assert (await client.call_tool(name)).model_dump()["content"][0]["text"] == name


@pytest.mark.rule("X62")
@pytest.mark.parametrize("revisions", ['["2025-11-25", "2025-06-18"]', '["2025-06-18"]'])
async def test_an_official_client_turns_to_the_handshake_where_only_2025_is_served(revisions: str) -> None:
    endpoints = f'{{"mcp": {{"path": "/mcp", "revisions": {revisions}}}}}'
    made = LocalFleet(revised(), environment={"MCPFLEET_ENDPOINTS": endpoints})
    async with made as fleet, fleet.client(mode="auto") as client:
        assert client.protocol_version in revisions
        assert (await client.call_tool("old")).model_dump()["content"][0]["text"] == "old"
