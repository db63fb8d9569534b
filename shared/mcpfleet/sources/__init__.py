"""Sources: existing MCP servers that workers serve, as their configuration describes them."""
