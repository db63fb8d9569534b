"""Handlers of MCP methods: each answers one exchange."""
