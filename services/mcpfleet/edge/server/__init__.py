"""One edge: its ASGI application, the router of methods, the revisions of 2025, its wiring and its end."""
