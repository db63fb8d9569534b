"""MCP's own results of handlers, as clients, audits and tasks have them (K22)."""

from __future__ import annotations

import pytest
from mcp_types import CallToolResult, GetPromptResult, PromptMessage, ReadResourceResult, TextContent
from mcp_types import TextResourceContents as Text

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet
from tests.kit.tasks import TaskClient

FAILED = CallToolResult(
    content=[TextContent(text="no paper")], structured_content={"tray": 2}, is_error=True, meta={"com.example/m": 1}
)


@pytest.fixture
def app() -> App:
    app = App("official", version="1")

    @app.tool()
    async def fail() -> CallToolResult:
        return FAILED

    @app.tool(task="required")
    async def fail_later() -> CallToolResult:
        return FAILED

    @app.prompt()
    async def review(title: str) -> GetPromptResult:
        message = PromptMessage(role="assistant", content=TextContent(text=title))
        return GetPromptResult(description="A review.", messages=[message], meta={"com.example/m": 1})

    @app.resource("library://books")
    async def books() -> ReadResourceResult:
        return ReadResourceResult(contents=[Text(uri="library://emma", text="Emma")], meta={"com.example/m": 1})

    return app


@pytest.mark.rule("K22")
async def test_a_handlers_own_result_reaches_its_client_whole(app: App) -> None:
    async with LocalFleet(app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        failed = await client.call("fail")
        later = (await client.until(await client.start("fail_later")))["result"]
        prompt = await client.ask("prompts/get", {"name": "review", "arguments": {"title": "Emma"}})
        named = TaskClient(http, headers={"Mcp-Name": "library://books"})
        read = await named.ask("resources/read", {"uri": "library://books"})
    for result in (failed, later):
        assert result["isError"] is True
        assert result["content"] == [{"type": "text", "text": "no paper"}]
        assert result["structuredContent"] == {"tray": 2}
        assert result["_meta"]["com.example/m"] == 1
        assert result["resultType"] == "complete"
    assert prompt["description"] == "A review."
    assert prompt["messages"] == [{"role": "assistant", "content": {"type": "text", "text": "Emma"}}]
    assert read["contents"] == [{"uri": "library://emma", "text": "Emma"}]
    assert prompt["_meta"]["com.example/m"] == read["_meta"]["com.example/m"] == 1
    # A failure that a tool tells is one for whoever counts them.
    assert [each["outcome"] for each in fleet.lines("audit") if each["target"] == "fail"] == ["tool_error"]
