"""The cost to their neighbours of readers that stop reading, beside that of readers that go on.

    .venv/bin/python -m tests.benchmarks.stalled --neighbours 500 --readers 50 --rounds 30

All are streams of one edge. Each round floods the readers with some 400 kB each, and changes a book that the neighbours
watch. Both kinds are measured in one run, in turns of fresh fleets. Seconds until a stalled reader is closed count from
the first flood, which is more than it has room for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from mcp import Client
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import END, UPDATED
from tests.fleet.library_app import LONG
from tests.kit.crowd import Heard, crowd
from tests.kit.exported import exported
from tests.kit.waiting import until

APP: Final = Path(__file__).parents[1] / "fleet" / "library_app.py"
BOOK: Final = "library://books/1"
WRITE_TIMEOUT: Final = 5.0
READ, STALL = "read", "stop reading"
_ROOM: Final = 4096
_CLOSED: Final = 'mcpfleet_edge_streams_ended_total{service="edge",reason="write_failed"}'


@dataclass
class Figures:
    """The figures beside one kind of readers."""

    latencies: list[float] = field(default_factory=list)
    """Milliseconds from the call that changed the book to each neighbour's delivery."""
    closed: list[float] = field(default_factory=list)
    """Seconds until each reader was closed."""

    def part(self, share: float) -> float:
        """The latency within which this share of the deliveries came."""
        return sorted(self.latencies)[max(0, round(len(self.latencies) * share) - 1)]


async def measure(kind: str, neighbours: int, readers: int, rounds: int, figures: Figures) -> None:
    """Flood the readers of a fresh fleet, and change a book meanwhile."""
    environment = {"MCPFLEET_WRITE_TIMEOUT": f"{WRITE_TIMEOUT}", "MCPFLEET_STREAM_PENDING": "1024"}
    room = _ROOM if kind == STALL else None
    async with (
        Fleet(APP, environment=environment) as fleet,
        crowd(fleet.urls[0], [None] * neighbours, resourceSubscriptions=[BOOK]) as watching,
        crowd(fleet.urls[0], [None] * readers, room=room, resourceSubscriptions=LONG) as flooded,
        Client(fleet.urls[0]) as client,
        anyio.create_task_group() as tasks,
    ):
        if kind == STALL:
            for stream in flooded:
                stream.stall()
            tasks.start_soon(_watch, fleet, readers, figures)
        for _ in range(rounds):
            await client.call_tool("flood", {})
            await _change(client, watching, figures)
        if kind == STALL:
            await until(lambda: len(figures.closed) == readers, within=3 * WRITE_TIMEOUT)
        assert not any(END in stream.kinds for stream in watching), "a neighbour was closed"
        tasks.cancel_scope.cancel()


async def _change(client: Client, watching: list[Heard], figures: Figures) -> None:
    before = len(watching[0].kinds)
    began = time.monotonic()
    await client.call_tool("rename", {"book": 1, "title": f"{began}"})
    await until(lambda: all(len(stream.kinds) > before for stream in watching))
    assert {stream.kinds[before] for stream in watching} == {UPDATED}
    figures.latencies += [(stream.times[before] - began) * 1e3 for stream in watching]


async def _watch(fleet: Fleet, readers: int, figures: Figures) -> None:
    """Note when the edge counts that it closed one; its log keeps a pace."""
    began = time.monotonic()
    while len(figures.closed) < readers:
        new = int((await exported(fleet)).get(_CLOSED, 0)) - len(figures.closed)
        figures.closed += [time.monotonic() - began] * new
        await anyio.sleep(0.1)


async def main(neighbours: int, readers: int, rounds: int, repeats: int) -> dict[str, Figures]:
    """Measure both kinds in turns."""
    found = {READ: Figures(), STALL: Figures()}
    for _ in range(repeats):
        for kind, figures in found.items():
            once = Figures()
            await measure(kind, neighbours, readers, rounds, once)
            figures.latencies += once.latencies
            figures.closed += once.closed
    return found


def show(found: dict[str, Figures], neighbours: int, readers: int) -> None:
    """Print the table."""
    table = Table(title=f"{neighbours:,} neighbours of {readers:,} flooded readers at one edge", highlight=False)
    for heading in ("readers that", "median ms", "99 in 100 ms", "last ms", "s until closed, first", "last"):
        table.add_column(heading, justify="left" if heading == "readers that" else "right")
    for kind, figures in found.items():
        closed = [f"{min(figures.closed):.1f}", f"{max(figures.closed):.1f}"] if figures.closed else ["", ""]
        median, most = statistics.median(figures.latencies), max(figures.latencies)
        table.add_row(kind, f"{median:.1f}", f"{figures.part(0.99):.1f}", f"{most:.1f}", *closed)
    console = Console(width=120)
    console.print(table)
    console.print(f"the write timeout is {WRITE_TIMEOUT:g} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neighbours", type=int, default=500)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    show(
        anyio.run(main, options.neighbours, options.readers, options.rounds, options.repeats),
        options.neighbours,
        options.readers,
    )
