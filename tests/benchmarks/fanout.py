"""One update to many streams of one edge, beside the official Python SDK and beside Hypercorn sending constant bytes.

    .venv/bin/python -m tests.benchmarks.fanout --rounds 3 --updates 5 --streams 200 1000 4000
    .venv/bin/python -m tests.benchmarks.fanout --beside ../before     # this tree's fleet and another's alone

Each is a process of its own, started anew for each number of streams, in alternating rounds of one run; the table has
medians. Nothing else should run on the machine: what a delivery costs in CPU holds even where something does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.benchmarks.beside import Comparison, Side, add_option, both, rounds_of
from tests.benchmarks.calls import reference
from tests.benchmarks.load import OWN_INTERPRETER

HERE = Path(__file__).parent
APP = HERE / "fanout_app.py"
SETTINGS = {"OTEL_SDK_DISABLED": "true", **OWN_INTERPRETER}
CONSTANT, SDK, OURS = "Hypercorn, constant bytes", "Python SDK", "mcpfleet"


@dataclass
class Figures:
    """The figures of one subject with one number of streams."""

    rates: list[float] = field(default_factory=list)
    """Deliveries a second, of each update."""
    medians: list[float] = field(default_factory=list)
    """Milliseconds until half of the streams were told."""
    lasts: list[float] = field(default_factory=list)
    """Milliseconds until the last one was."""
    cpu: list[float] = field(default_factory=list)
    """Microseconds of the process that holds the streams, for each delivery."""
    memory: list[float] = field(default_factory=list)
    """KiB of it for each stream."""
    opening: list[float] = field(default_factory=list)
    """Streams opened a second."""


@asynccontextmanager
async def running(name: str) -> AsyncIterator[tuple[str, int]]:
    """Run a subject; yields its URL and the process that holds the streams."""
    if name == OURS:
        async with Fleet(APP, environment=SETTINGS) as fleet:
            yield fleet.urls[0], fleet.edges[0].pid
    else:
        async with reference("fanout" if name == CONSTANT else "sdk_fanout") as (url, process):
            yield url, process.pid


async def measure(name: str, streams: int, updates: int, figures: Figures) -> None:
    """Start a subject, open streams, and publish."""
    async with running(name) as (url, pid):
        await load(url, pid, streams, updates, figures)


async def load(url: str, pid: int, streams: int, updates: int, figures: Figures) -> None:
    """Open streams and publish; note what came of it."""
    command = [sys.executable, "-m", "tests.benchmarks.listeners", url, str(streams), str(updates), str(pid)]
    done = json.loads((await anyio.run_process(command, stderr=None)).stdout)
    figures.memory.append(done["memory"] / streams / 1024)
    figures.opening.append(streams / done["opening"])
    for each in done["rounds"]:
        figures.rates.append(streams / each["seconds"])
        figures.medians.append(each["median"] * 1e3)
        figures.lasts.append(each["seconds"] * 1e3)
    figures.cpu.append(sum(each["cpu"] for each in done["rounds"]) / streams / updates * 1e6)


async def compare(other: Path, rounds: int, updates: int, sizes: Sequence[int]) -> None:
    """Measure this tree's fleet beside another's, and print how they compare."""
    comparison = Comparison("one update to all streams of one process", other, rounds)

    async def measure(side: Side) -> dict[str, float]:
        figures = Figures()
        await load(side.url, side.edge.pid, streams, updates, figures)
        rates = {"deliveries/s": statistics.median(figures.rates), "opened/s": figures.opening[-1]}
        return {**rates, "CPU µs each": figures.cpu[-1]}

    for streams in sizes:
        async with both(other, APP, SETTINGS) as sides:
            await comparison.measure(f"{streams:,} streams", sides, measure)
    comparison.show()


async def main(rounds: int, updates: int, sizes: Sequence[int]) -> None:
    """Measure in alternating rounds, and print the medians."""
    table = Table(title="one update to all streams of one process", highlight=False)
    for heading in ("streams", "", "deliveries/s", "of SDK", "median ms", "last ms", "CPU µs each", "KiB a stream",
                    "of SDK", "opened/s"):  # fmt: skip
        table.add_column(heading, justify="right" if heading else "left")
    for streams in sizes:
        found = {name: Figures() for name in (CONSTANT, SDK, OURS)}
        for _ in range(rounds):
            for name, figures in found.items():
                await measure(name, streams, updates, figures)
        for name, figures in found.items():
            rate, sdk = statistics.median(figures.rates), found[SDK]
            memory = statistics.median(figures.memory)
            table.add_row(
                f"{streams:,}",
                name,
                f"{rate:,.0f}",
                f"{rate / statistics.median(sdk.rates):.2f}",
                f"{statistics.median(figures.medians):,.1f}",
                f"{statistics.median(figures.lasts):,.1f}",
                f"{statistics.median(figures.cpu):,.0f}",
                f"{memory:,.1f}",
                f"{memory / statistics.median(sdk.memory):.2f}",
                f"{statistics.median(figures.opening):,.0f}",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="3 by default, and 20 of two trees")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", help="200, 1000 and 4000 by default, and 1000 of two trees")
    add_option(parser)
    options = parser.parse_args()
    rounds = rounds_of(options, 3)
    if options.beside is None:
        anyio.run(main, rounds, options.updates, options.streams or [200, 1000, 4000])
    else:
        anyio.run(compare, options.beside, rounds, options.updates, options.streams or [1000])
