"""Durable tasks at the edge: made, read, answered and ended for their clients (the Tasks extension)."""
