"""MCP at the edge: the order of checks, parameter schemas, and what clients carry between requests."""
