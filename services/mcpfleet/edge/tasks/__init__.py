"""Durable tasks at the edge: created, read, updated and cancelled for clients (the Tasks extension)."""
