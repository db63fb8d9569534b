"""Calls a CPU second of an own method beside `tools/call`, and of a tool beside itself with an observer that sleeps.

    .venv/bin/python -m tests.benchmarks.own_methods [--rounds 15] [--seconds 1.5]

All sides run in alternating rounds of one process: LocalFleets with one edge and one worker. So a rate has the cost of
all parts and of the client, by the processor's time, which other processes change little. The ratios are medians of the
rounds' own; an own method should reach 0.95 of `tools/call`, and a fleet with a sleeping observer 0.99 of one without.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Any, Final

import httpx2

from mcpfleet.app import App, Context, Extension
from mcpfleet.testing.local import LocalFleet
from tests.unit.edge.asgi import MODERN, request

CALLERS: Final = 8
"""Requests that are under way at once."""
QUIET: Final = {"MCPFLEET_AUDIT": "false"}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def sleep_over_each_event(event: object) -> None:
    """Observe nothing, for an hour."""
    del event
    time.sleep(3_600)


def shop() -> App:
    """An application that adds, by a tool and by a method."""
    app, extension = App("shop", version="1"), Extension("com.example/sums")

    @app.tool()
    async def add(left: int, right: int, ctx: Context) -> dict[str, int]:
        """Add two integers."""
        del ctx
        return {"sum": left + right}

    @extension.method("sums/add")
    async def add_too(left: int, right: int, ctx: Context) -> dict[str, int]:
        """Add two integers."""
        del ctx
        return {"sum": left + right}

    app.add(extension)
    return app


def post_of(method: str, params: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """The arguments of a POST."""
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
    } | ({"mcp-name": name} if name else {})
    return {"json": request(method, params), "headers": headers}


SUM: Final = {"left": 2, "right": 3}
TOOL: Final = post_of("tools/call", {"name": "add", "arguments": SUM}, "add")
METHOD: Final = post_of("sums/add", SUM)


async def rate(http: httpx2.AsyncClient, post: Mapping[str, Any], seconds: float) -> float:
    """Call from several callers for a while; return the calls a second of the processor."""
    until, count = time.perf_counter() + seconds, 0

    async def call() -> None:
        nonlocal count
        while time.perf_counter() < until:
            response = await http.post("/mcp", **post)
            assert b'"sum":5' in response.content
            count += 1

    began = time.process_time()
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return count / (time.process_time() - began)


async def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the rates of each side by rounds."""
    observed = {**QUIET, "MCPFLEET_OBSERVER": f"{__name__}:sleep_over_each_event"}
    if __name__ == "__main__":
        observed["MCPFLEET_OBSERVER"] = "tests.benchmarks.own_methods:sleep_over_each_event"
    rates: dict[str, list[float]] = {"tools/call": [], "own method": [], "tools/call, observed": []}
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(LocalFleet(shop(), environment=QUIET))
        other = await stack.enter_async_context(LocalFleet(shop(), environment=observed))
        one, two = [await stack.enter_async_context(fleet.http()) for fleet in (plain, other)]
        sides = {"tools/call": (one, TOOL), "own method": (one, METHOD), "tools/call, observed": (two, TOOL)}
        for number in range(rounds + 1):
            for name, (http, post) in sides.items() if number % 2 else reversed(sides.items()):
                found = await rate(http, post, seconds)
                if number:  # the first round warms up, and fills the observer's queue
                    rates[name].append(found)
    return rates


def main() -> None:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    rates = asyncio.run(measure(options.rounds, options.seconds))
    for name, found in rates.items():
        ratio = statistics.median(each / plain for each, plain in zip(found, rates["tools/call"], strict=True))
        sys.stdout.write(f"{name:22} {statistics.median(found):8.0f} calls/CPU s   {ratio:.3f} of tools/call\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
