"""Hosting: existing MCP servers that a worker serves as they are."""
