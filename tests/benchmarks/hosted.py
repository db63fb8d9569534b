"""A hosted tool beside the same tool of an App: calls a second, time of a call, CPU, and an idle worker's memory.

    .venv/bin/python -m tests.benchmarks.hosted --rounds 5 --seconds 3

Both are fleets with one edge and one worker. The hosted server is an object of the official SDK in a child of the
worker, which all callers share. They are measured in alternating rounds of one run, and the table has their medians.
Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio
import psutil
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.benchmarks.calls import APP, WARM_UP, Subject, measure, processes_of
from tests.benchmarks.load import OWN_INTERPRETER

SERVER: Final = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("hosted")


@server.tool()
async def add(left: int, right: int) -> int:
    return left + right
"""
NATIVE, HOSTED = "an App's tool", "a hosted tool"
MIB: Final = 1024 * 1024


async def compare(rounds: int, seconds: float) -> None:
    """Measure both with one connection and with many, and print the medians."""
    table = Table("tool", "calls/s of 1", "ms of a call", "calls/s of 32", "CPU µs a call", "idle worker MiB")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "server.py").write_text(SERVER)
        (folder / "fleet.toml").write_text('[sources.hosted]\nobject = "server.py:server"\nprefix = ""\n')
        memory: dict[str, float] = {}
        single: list[Subject] = []
        many: list[Subject] = []
        for name, target, own in (
            (NATIVE, str(APP), {}),
            (HOSTED, f"{folder}/fleet.toml:hosted", {"MCPFLEET_POOL": "hosted"}),
        ):
            fleet = await stack.enter_async_context(Fleet(target, environment={**OWN_INTERPRETER, **own}))
            [worker] = [psutil.Process(child.pid) for child in fleet.workers]
            memory[name] = worker.memory_info().rss / MIB
            processes = [*processes_of(fleet), *worker.children(recursive=True)]
            single.append(Subject(name, fleet.urls[0], processes))
            many.append(Subject(name, fleet.urls[0], processes))
        for connections, subjects in ((1, single), (32, many)):
            for subject in subjects:
                await measure(subject, connections, WARM_UP)
                subject.forget()
            for _ in range(rounds):
                for subject in subjects:
                    await measure(subject, connections, seconds)
        for one, busy in zip(single, many, strict=True):
            slow, fast = statistics.median(one.rates), statistics.median(busy.rates)
            spent = statistics.median(busy.whole)
            table.add_row(
                one.name, f"{slow:.0f}", f"{1e3 / slow:.2f}", f"{fast:.0f}", f"{spent:.0f}", f"{memory[one.name]:.0f}"
            )
        times = [statistics.median(each.rates) for each in single]
        rates = [statistics.median(each.rates) for each in many]
    console = Console()
    console.print(table)
    console.print(
        f"hosted beside native: {times[0] / times[1]:.2f} of the time of a call (at most 1.3), "
        f"{rates[1] / rates[0]:.2f} of the calls a second (at least 0.8)"
    )


def main() -> None:
    """Read the command line, and compare."""
    parser = argparse.ArgumentParser(description="Compare a hosted tool with an App's.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    anyio.run(compare, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
