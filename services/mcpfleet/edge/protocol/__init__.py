"""MCP at the edge: the ladder of checks, what answers each method, and what clients carry between requests."""
