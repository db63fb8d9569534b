"""The application whose tasks are measured: one tool that is always a task, and does next to nothing."""

from __future__ import annotations

from mcpfleet.app import App

app = App("works", version="1")


@app.tool(task="required")
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number
