"""The application whose tasks are measured: one tool that is always a task, and does next to nothing."""

from __future__ import annotations

from mcpfleet.app import App

app = App("works", version="1")


@app.tool(task="required")
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@app.tool(task="required", retention=1.0)
async def brief(number: int) -> int:
    """Double a number, and let it be forgotten soon."""
    return 2 * number
