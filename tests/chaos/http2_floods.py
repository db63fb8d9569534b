"""Floods of HTTP/2 on one connection: what 5 MB of each cost an edge, and how long a neighbour waits meanwhile.

    .venv/bin/python -m tests.chaos.http2_floods --megabytes 5

Each flood gets a connection of its own to a real edge, and a neighbour calls a tool over another one all the while.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.kit.h2_floods import FLOODS, Flood, Sent, send
from tests.kit.wire_bytes import Posts, lines, message, meta, read_body

APP: Final = Path(__file__).parent.parent / "fleet" / "app.py"
CALL_EVERY: Final = 0.02
"""Seconds between the calls of the neighbour."""


@dataclass
class Neighbour:
    """Calls one tool over a connection of its own, again and again."""

    url: str
    latencies: list[float] = field(default_factory=list)
    wrong: int = 0
    has_called: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self) -> None:
        """Call until cancelled."""
        parts = urlsplit(self.url)
        body = message("tools/call", {"name": "add", "arguments": {"left": 2, "right": 3}}, meta("neighbour"))
        request = Posts(parts.netloc, parts.path).post(body, lines("tools/call", "add"))
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            while True:
                begun = time.monotonic()
                writer.write(request)
                self.wrong += b'"structuredContent":' not in await read_body(reader)
                self.latencies.append(time.monotonic() - begun)
                self.has_called.set()
                await asyncio.sleep(CALL_EVERY)
        finally:
            writer.close()


@dataclass(frozen=True)
class Cost:
    """The cost of a flood."""

    name: str
    sent: Sent
    cpu: float
    """Seconds of the edge, without what the neighbour's calls cost at rest."""
    worst: float
    """Seconds that the neighbour waited."""
    wrong: int
    before: float
    after: float
    """Megabytes of the edge."""


class Bench:
    """An edge, and what it costs at rest."""

    def __init__(self, url: str, pid: int) -> None:
        """Measure a process."""
        self.url = url
        self._process = psutil.Process(pid)
        parts = urlsplit(url)
        self._address = (str(parts.hostname), int(parts.port or 0))
        self._at_rest = 0.0

    def megabytes(self) -> float:
        """The edge's memory."""
        return float(self._process.memory_info().rss / 2**20)

    def cpu(self) -> float:
        """Seconds that the edge has spent."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    async def rest(self, seconds: float = 2.0) -> None:
        """Learn what the neighbour's calls cost alone."""
        async with self._neighbour() as _:
            await asyncio.sleep(0.5)
            begun, cpu = time.monotonic(), self.cpu()
            await asyncio.sleep(seconds)
            self._at_rest = (self.cpu() - cpu) / (time.monotonic() - begun)

    async def measure(self, name: str, flood: Flood, size: int, *, segments: bool = False) -> Cost:
        """Send a flood, and see what it costs until the edge is at rest again."""
        before = self.megabytes()
        async with self._neighbour() as neighbour:
            begun, cpu = time.monotonic(), self.cpu()
            sent = await asyncio.to_thread(send, self._address, flood, size, segments=segments)
            await self._settle()
            spent = self.cpu() - cpu - (time.monotonic() - begun) * self._at_rest
        return Cost(name, sent, max(0.0, spent), max(neighbour.latencies), neighbour.wrong, before, self.megabytes())

    async def _settle(self) -> None:
        """Wait until the edge does no more than at rest."""
        for _ in range(100):
            cpu = self.cpu()
            await asyncio.sleep(0.2)
            if self.cpu() - cpu < 0.1:
                return

    @asynccontextmanager
    async def _neighbour(self) -> AsyncIterator[Neighbour]:
        neighbour = Neighbour(self.url)
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(neighbour.call())
            await neighbour.has_called.wait()
            neighbour.latencies.clear()
            neighbour.has_called.clear()
            yield neighbour
            await neighbour.has_called.wait()  # a call that waits is what is looked for
            calling.cancel()


async def flooded(names: Sequence[str], size: int) -> list[Cost]:
    """Measure floods against a fleet of their own."""
    async with Fleet(APP) as fleet:
        bench = Bench(fleet.urls[0], fleet.edges[0].pid)
        await bench.rest()
        costs = [await bench.measure(name, FLOODS[name], size) for name in names if name in FLOODS]
        if "PING" in names:
            costs.append(await bench.measure("PING, a segment each", FLOODS["PING"], size, segments=True))
        return costs


def show(costs: Sequence[Cost]) -> None:
    """Print the table."""
    table = Table(title="floods of HTTP/2, each on one connection", highlight=False)
    for heading in ("flood", "MB sent", "s", "GOAWAY", "CPU s", "neighbour, worst s", "wrong", "MB before", "MB after"):
        table.add_column(heading, justify="left" if heading == "flood" else "right")
    for cost in costs:
        table.add_row(
            cost.name,
            f"{cost.sent.size / 1e6:.2f}",
            f"{cost.sent.seconds:.1f}",
            "" if cost.sent.told is None else str(cost.sent.told),
            f"{cost.cpu:.2f}",
            f"{cost.worst:.2f}",
            str(cost.wrong),
            f"{cost.before:.0f}",
            f"{cost.after:.0f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=5.0)
    parser.add_argument("--only", action="append", default=[], help="the name of a flood")
    options = parser.parse_args()
    wanted = options.only or list(FLOODS)
    show(asyncio.run(flooded(wanted, int(options.megabytes * 1_000_000))))
