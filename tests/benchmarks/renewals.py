"""How long a wave of renewals takes (N15), by measurement; and by simulation what one hint costs with many edges.

    .venv/bin/python -m tests.benchmarks.renewals --owners 3000 --delays 50 200 400
    .venv/bin/python -m tests.benchmarks.renewals --owners 3000 --divide 10

All streams of an edge fall due at the same moment, each with a credential of its own. In service they fall due apart,
and equal credentials are asked for once. `--divide` has authorization answer faster, and multiplies what is measured.
The hint's table places streams on edges by a seed, and counts with the costs of a hint and a delivery that it measures.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import structlog
from rich.console import Console
from rich.table import Table

from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.hints import resource_hint_subject, resource_key
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.streams.renewals import AT_ONCE, Renewals
from mcpfleet.edge.streams.stream import Exit, Stream
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.wire.notices import resource_updated
from tests.unit.edge.streams.opened import URI, Open, stream

LEASE = 60.0
"""Seconds for which a permission holds (N6)."""
WINDOW = LEASE / 2 - min(1.0, LEASE / 20)
"""Seconds that are left for one wave (N14)."""
EDGES = (10, 100, 1_000)
STREAMS = 10_000
SHARES = (0.0001, 0.01, 1.0)
"""Shares of the streams that watch the changed resource."""
MEASURED = 2_000
"""Streams for which a delivery is measured."""


class Slow(StreamLease):
    """A lease that authorization renews slowly."""

    def __init__(self, delay: float) -> None:
        super().__init__(Principal(subject="owner"))
        self.expires = time.monotonic() + 3_600
        self._delay = delay

    async def renew(self) -> bool:
        """Go on."""
        await anyio.sleep(self._delay)
        self.expires = time.monotonic() + 3_600
        return True


async def wave(streams: Sequence[Stream]) -> float:
    """Renew permissions that fall due together; returns the seconds until the last was renewed."""
    left = anyio.Event()
    renewed = 0

    def refresh(_: object) -> None:
        nonlocal renewed
        renewed += 1
        if renewed == len(streams):
            left.set()

    renewals = Renewals(
        longest=3_600, refresh=refresh, renewals=StreamInstruments(Metrics()).renewals, log=structlog.get_logger()
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renewals.run)
        began = time.monotonic()
        for each in streams:
            renewals.renew_now(each)
        await left.wait()
        took = time.monotonic() - began
        tasks.cancel_scope.cancel()
    for each in streams:
        renewals.remove(each)
    return took


@dataclass(frozen=True)
class Costs:
    """Microseconds of an edge's processor."""

    hint: float
    """For hearing one."""
    delivery: float
    """For telling one stream, by a client that has no socket."""


async def costs() -> Costs:
    """Measure what an edge does for a hint and for each stream that is told."""
    heard: Counter[str] = Counter()
    interest = Interest(None, lambda *hint: heard.update([hint[2]]), most=1)  # type: ignore[arg-type]  # it hears without a bus
    subject = resource_hint_subject("mcp", "library", resource_key(URI))
    hint = Incoming(subject, "", URI.encode())
    began = time.process_time()
    for _ in range(MEASURED):
        interest._on_hint(hint)
    per_hint = (time.process_time() - began) / MEASURED
    opened = [stream() for _ in range(MEASURED)]
    async with anyio.create_task_group() as tasks:
        for each in opened:
            tasks.start_soon(each.run)
        await _all_have(opened, 1)
        told, all_told = 0, anyio.Event()

        def count(number: int) -> None:
            nonlocal told
            told += number
            if told == MEASURED:
                all_told.set()

        for each in opened:
            each.stream.on_written = count
        notice = resource_updated(URI)
        began = time.process_time()
        for each in opened:
            each.stream.offer(URI, notice)
        await all_told.wait()
        per_delivery = (time.process_time() - began) / MEASURED
        for each in opened:
            each.stream.end(Exit.SHUTDOWN)
    return Costs(per_hint * 1e6, per_delivery * 1e6)


async def _all_have(opened: Sequence[Open], count: int) -> None:
    for each in opened:
        await each.told(count)


def placed(edges: int, watching: int, seed: int) -> Counter[int]:
    """How many of the streams that watch each edge holds, where a balancer places them by chance."""
    chance = random.Random(seed)
    return Counter(chance.randrange(edges) for _ in range(watching))


def hints(measured: Costs, seed: int) -> Table:
    """Say what one hint costs."""
    table = Table(title=f"one hint, {STREAMS:,} streams in all; {measured.hint:.1f} µs a hint heard, "
                  f"{measured.delivery:.1f} µs a stream told")  # fmt: skip
    size = len(URI) + len(resource_hint_subject("mcp", "library", resource_key(URI)))
    columns = ("edges", "streams that watch", "edges that hear", "bytes from NATS", "ms, busiest edge", "ms, fleet")
    for column in columns:
        table.add_column(column, justify="right")
    for edges in EDGES:
        for share in SHARES:
            watching = round(STREAMS * share)
            holds = placed(edges, watching, seed)
            busiest = measured.hint + measured.delivery * max(holds.values())
            fleet = measured.hint * len(holds) + measured.delivery * watching
            row = (edges, watching, len(holds), size * len(holds))
            table.add_row(*[f"{each:,}" for each in row], f"{busiest / 1e3:,.2f}", f"{fleet / 1e3:,.2f}")
    return table


async def waves(owners: int, delays: Sequence[float], divide: float) -> Table:
    """Measure the waves, side by side: they wait nearly all of the time."""
    took: dict[float, float] = {}

    async def measure(delay: float, streams: Sequence[Stream]) -> None:
        took[delay] = await wave(streams) * divide

    made = [[stream(lease=Slow(delay / 1e3 / divide)).stream for _ in range(owners)] for delay in delays]
    async with anyio.create_task_group() as tasks:
        for delay, streams in zip(delays, made, strict=True):
            tasks.start_soon(measure, delay, streams)
    table = Table(title=f"{owners:,} owners, {AT_ONCE} at once, a window of {WINDOW:.0f} s in a lease of {LEASE:.0f} s")
    for column in ("ms an answer", "s expected", "s measured", "within the window"):
        table.add_column(column, justify="right")
    for delay in delays:
        expected = owners * delay / 1e3 / AT_ONCE
        verdict = "yes" if took[delay] <= WINDOW else "no"
        table.add_row(f"{delay:g}", f"{expected:.1f}", f"{took[delay]:.1f}", verdict)
    return table


async def main(options: argparse.Namespace) -> None:
    """Print both tables."""
    console = Console(width=120, highlight=False)
    console.print(await waves(options.owners, options.delays, options.divide))
    console.print(hints(await costs(), options.seed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=3_000)
    parser.add_argument("--delays", type=float, nargs="+", default=[50.0, 200.0, 400.0], help="milliseconds")
    parser.add_argument("--divide", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=7)
    anyio.run(main, parser.parse_args())
