"""Sessions of clients of 2025. Every edge serves every session, and none owns one."""
