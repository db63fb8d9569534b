"""FastMCP's server with one tool that is always a task, as its documentation writes it; a second argument is its port.

`server` answers clients, and its own worker runs tasks; `worker` is one more worker's process.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import FastMCP  # type: ignore[import-not-found]  # it lives in an environment of its own
from fastmcp.utilities.tasks import TaskConfig  # type: ignore[import-not-found]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]

reference = FastMCP("reference")
reference.add_extension(TasksExtension())


async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


reference.tool(task=TaskConfig(mode="required"))(double)


async def work() -> None:
    """Run tasks; the server's life is its worker's."""
    async with reference._lifespan_manager():
        await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(work())
    else:
        reference.run(
            transport="http", port=int(sys.argv[2]), stateless_http=True, show_banner=False, log_level="ERROR"
        )
