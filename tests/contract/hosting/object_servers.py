"""Server objects of the SDK 2: one with its high-level class, and one with the low-level one."""

from __future__ import annotations

import os
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

high = MCPServer("high", version="5")


@high.tool()
async def add(left: int, right: int) -> int:
    """Add two numbers."""
    print("adding", flush=True)  # noqa: T201  # what a server prints must not break its protocol
    os.write(1, b"adding below Python\n")
    return left + right


@high.tool()
async def steps(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2)
    return "done"


async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])


async def call_tool(ctx: Any, params: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=str(params.arguments))])


low: Server[Any] = Server("low", on_list_tools=list_tools, on_call_tool=call_tool)
