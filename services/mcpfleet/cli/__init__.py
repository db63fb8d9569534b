"""The command line: `mcpfleet …`, with `dev`, which runs the whole system in one terminal."""
