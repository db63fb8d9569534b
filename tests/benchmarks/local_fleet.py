"""How soon a test's call is possible in a LocalFleet: `python -m tests.benchmarks.local_fleet`.

It prints the seconds from the beginning of `async with LocalFleet(app)` to the first call's result, and the processor's
seconds of that. The first fleet of a process makes the tables; the next ones copy them.
"""

from __future__ import annotations

import asyncio
import time

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet

_FLEETS = 6


async def begin() -> tuple[float, float]:
    """Begin a fleet, and call; returns the seconds, and those of the processor."""
    app = App("local", version="1")

    @app.tool()
    async def add(left: int, right: int) -> int:
        """Add two integers."""
        return left + right

    began, worked = time.monotonic(), time.process_time()
    async with LocalFleet(app) as fleet, fleet.client() as client:
        await client.call_tool("add", {"left": 1, "right": 2})
        return time.monotonic() - began, time.process_time() - worked


def main() -> None:
    """Print a line for each fleet."""
    for number in range(_FLEETS):
        seconds, worked = asyncio.run(begin())
        print(f"fleet {number + 1}: a call after {seconds:.3f} s, {worked:.3f} s of the processor")  # noqa: T201


if __name__ == "__main__":
    main()
