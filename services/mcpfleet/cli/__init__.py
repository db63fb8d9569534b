"""The command line: `mcpfleet …`, and `dev`, which runs the whole system in one terminal."""
