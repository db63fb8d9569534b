"""Calls a second, and CPU a call, beside the official SDKs and beside Hypercorn answering a constant.

    .venv/bin/python -m tests.benchmarks.calls --rounds 5 --seconds 3
    .venv/bin/python -m tests.benchmarks.calls --callers 1,50,5000 [--postgresql]
    .venv/bin/python -m tests.benchmarks.calls --beside ../before     # this tree's fleet and another's alone

All are measured in alternating rounds of one run, since single rounds differ by 15 %; the table has their medians.
Nothing else should run on the machine. `--callers` measures so many callers with tokens instead, listed and signed,
with limits and without.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import psutil
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.benchmarks.beside import Comparison, Side, add_option, both, rounds_of
from tests.benchmarks.callers import KINDS, WITH, WITHOUT, named_fleets, named_settings
from tests.benchmarks.load import OWN_INTERPRETER
from tests.kit.issuer import issuer
from tests.kit.node import install

HERE = Path(__file__).parent
APP = HERE.parent / "fleet" / "app.py"
WARM_UP = 3.0
"""Seconds of load before the first round; Node's compiler needs the most."""

CONSTANT, PYTHON, TYPESCRIPT = "Hypercorn, a constant", "Python SDK", "TypeScript SDK"
RATIOS = {"of constant": CONSTANT, "of Python SDK": PYTHON, "of TS SDK": TYPESCRIPT}
"""The columns that compare rates, and with whose."""


@dataclass
class Subject:
    """Something that is measured."""

    name: str
    url: str
    processes: list[psutil.Process]
    """The one that answers clients first, then all others that take part."""
    tokens: str = ""
    """A file of its callers' tokens; empty where they have none."""
    rates: list[float] = field(default_factory=list)
    front: list[float] = field(default_factory=list)
    """CPU microseconds a call of the process that answers clients."""
    whole: list[float] = field(default_factory=list)
    """CPU microseconds a call of all that take part."""

    def forget(self) -> None:
        """Drop what was noted while warming up."""
        for figures in (self.rates, self.front, self.whole):
            figures.clear()

    def spent(self) -> list[float]:
        """CPU seconds of each process until now."""
        return [sum(process.cpu_times()[:2]) for process in self.processes]


async def measure(subject: Subject, connections: int, seconds: float) -> None:
    """Put a load on a subject for a while, and note what came of it."""
    before = subject.spent()
    command = [sys.executable, "-m", "tests.benchmarks.load", subject.url, str(connections), str(seconds)]
    if subject.tokens:
        command.append(subject.tokens)
    done = json.loads((await anyio.run_process(command)).stdout)
    if done["wrong"]:
        raise SystemExit(f"{subject.name}: {done['wrong']} of {done['right'] + done['wrong']} calls went wrong")
    used = [(after - first) / done["right"] * 1e6 for after, first in zip(subject.spent(), before, strict=True)]
    subject.rates.append(done["right"] / done["seconds"])
    subject.front.append(used[0])
    subject.whole.append(sum(used))


@asynccontextmanager
async def reference(*arguments: str) -> AsyncIterator[tuple[str, psutil.Process]]:
    """Run one of the references; yields its URL and its process."""
    command = [sys.executable, "-m", "tests.benchmarks.references", *arguments]
    async with await anyio.open_process(command, stderr=None, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield (await process.stdout.receive()).decode().split()[0], psutil.Process(process.pid)
        finally:
            process.terminate()


async def subjects(stack: AsyncExitStack) -> list[Subject]:
    """Start everything that is measured."""
    found = []
    installed = await anyio.to_thread.run_sync(install, HERE / "typescript")
    for name, *arguments in ((CONSTANT, "constant"), (PYTHON, "sdk"), (TYPESCRIPT, "typescript", str(installed))):
        url, process = await stack.enter_async_context(reference(*arguments))
        found.append(Subject(name, url, [process]))
    for name, environment in (await settings(stack)).items():
        fleet = await stack.enter_async_context(Fleet(APP, environment={**OWN_INTERPRETER, **environment}))
        found.append(Subject(name, fleet.urls[0], processes_of(fleet)))
    return found


def processes_of(fleet: Fleet) -> list[psutil.Process]:
    """The processes of a fleet that take part in a call."""
    return [psutil.Process(child.pid) for child in (*fleet.edges, *fleet.workers, fleet.nats)]


async def settings(stack: AsyncExitStack) -> dict[str, dict[str, str]]:
    """The settings of each fleet that is measured, by its name."""
    collector, _ = await stack.enter_async_context(reference("collector"))
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.removesuffix("/mcp"), "OTEL_METRICS_EXPORTER": "none"}
    return {"mcpfleet": {}, "mcpfleet, 1 in 10 traced": {**traced, "MCPFLEET_SAMPLE_RATIO": "0.1"}}


async def compare(other: Path, counts: Sequence[int], rounds: int, seconds: float, connections: int) -> None:
    """Measure this tree's fleets beside another's, and print how they compare.

    Args:
        other: the other tree.
        counts: how many callers with tokens; none for one caller without a name.
        rounds: so many.
        seconds: of each.
        connections: of each load.
    """
    comparison = Comparison(f"tools/call over {connections} connections", other, rounds)

    async def load(tokens: Path | None, side: Side) -> dict[str, float]:
        subject = Subject(side.tree.commit, side.url, side.processes, str(tokens or ""))
        await measure(subject, connections, seconds)
        return {"calls/s": subject.rates[-1], "CPU µs, front": subject.front[-1], "CPU µs, all": subject.whole[-1]}

    async def each(name: str, environment: dict[str, str], tokens: Path | None = None) -> None:
        async with both(other, APP, environment) as sides:
            await comparison.measure(name, sides, partial(load, tokens))

    async with AsyncExitStack() as stack:
        if not counts:
            for name, environment in (await settings(stack)).items():
                await each(name, environment)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpfleet-callers-")))
        made = await stack.enter_async_context(issuer())
        for count in counts:
            for kind, limits, environment, tokens in named_settings(count, folder, made):
                await each(f"{count:,} callers, {kind}, {limits}", environment, tokens)
    comparison.show()


async def main(rounds: int, seconds: float, connections: int) -> None:
    """Measure in alternating rounds, and print the medians."""
    async with AsyncExitStack() as stack:
        measured = await subjects(stack)
        await alternate(measured, rounds, seconds, connections)
    show(measured, connections)


async def alternate(measured: Sequence[Subject], rounds: int, seconds: float, connections: int) -> None:
    """Warm all up, and measure them in alternating rounds."""
    for subject in measured:
        await measure(subject, connections, WARM_UP)
        subject.forget()
    for _ in range(rounds):
        for subject in measured:
            await measure(subject, connections, seconds)


async def main_named(counts: Sequence[int], rounds: int, seconds: float, connections: int, *, postgresql: bool) -> None:
    """Measure callers with tokens, with limits and without, and print the medians."""
    found: dict[tuple[int, str, str], Subject] = {}
    with tempfile.TemporaryDirectory(prefix="mcpfleet-callers-") as folder:
        for count in counts:
            async with named_fleets(count, Path(folder), postgresql=postgresql) as fleets:
                for kind, limits, fleet, tokens in fleets:
                    processes = [*processes_of(fleet), *(psutil.Process(each.pid) for each in fleet.service_processes)]
                    name = f"{count:,} callers, {kind}, {limits}"
                    found[count, kind, limits] = Subject(name, fleet.urls[0], processes, str(tokens))
                here = [subject for key, subject in found.items() if key[0] == count]
                await alternate(here, rounds, seconds, connections)
    table = Table(title=f"tools/call over {connections} connections, callers with tokens", highlight=False)
    headings = ("calls/s", "lowest", "without limits", "ratio", "CPU µs, front", "without", "CPU µs, all", "without")
    for heading in ("callers", "tokens", *headings):
        table.add_column(heading, justify="right")
    for count in counts:
        for kind in KINDS:
            limited, free = found[count, kind, WITH], found[count, kind, WITHOUT]
            rate, rate_free, *spent = (
                statistics.median(getattr(subject, figure))
                for figure in ("rates", "front", "whole")
                for subject in (limited, free)
            )
            figures = (f"{rate:,.0f}", f"{min(limited.rates):,.0f}", f"{rate_free:,.0f}", f"{rate / rate_free:.2f}")
            table.add_row(f"{count:,}", kind, *figures, *(f"{each:,.0f}" for each in spent))
    Console(width=140).print(table)


def show(measured: Sequence[Subject], connections: int) -> None:
    """Print the table."""
    table = Table(title=f"tools/call over {connections} connections", highlight=False)
    for heading in ("", "calls/s", "lowest", "highest", "CPU µs, front", "CPU µs, all", *RATIOS):
        table.add_column(heading, justify="left" if not heading else "right")
    rates = {subject.name: statistics.median(subject.rates) for subject in measured}
    for subject in measured:
        rate = rates[subject.name]
        figures = (
            rate,
            min(subject.rates),
            max(subject.rates),
            *map(statistics.median, (subject.front, subject.whole)),
        )
        ratios = (f"{rate / rates[name]:.2f}" for name in RATIOS.values())
        table.add_row(subject.name, *(f"{figure:,.0f}" for figure in figures), *ratios)
    Console(width=140).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="5 by default, and 20 of two trees")
    parser.add_argument("--seconds", type=float, help="3 by default, and 2 of two trees")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--callers", help="how many callers with tokens, for example 1,50,5000", default="")
    parser.add_argument("--postgresql", action="store_true", help="where the limits of --callers are kept")
    add_option(parser)
    options = parser.parse_args()
    counted = [int(count) for count in options.callers.split(",") if count]
    seconds = options.seconds or (3.0 if options.beside is None else 2.0)
    measuring = (rounds_of(options, 5), seconds, options.connections)
    if options.beside is not None:
        anyio.run(compare, options.beside, counted, *measuring)
    elif counted:
        anyio.run(partial(main_named, counted, *measuring, postgresql=options.postgresql))
    else:
        anyio.run(main, *measuring)
