"""The server of the example: any object of FastMCP or an official SDK would do, and so would a command."""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def list_notes() -> list[str]:
    """List the notes."""
    return ["Ada likes tea"] if "NOTES_TOKEN" in os.environ else []
