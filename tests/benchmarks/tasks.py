"""Durable tasks from their creation to their completion, beside FastMCP's on Redis.

    .venv/bin/python -m tests.benchmarks.tasks --rounds 3 --seconds 3
    .venv/bin/python -m tests.benchmarks.tasks --beside ../before     # this tree's fleets and another's alone

A whole fleet (an edge, a process of services, a worker) makes, runs and ends tasks on PostgreSQL and on SQLite.
PostgreSQL has each commit on its disk. FastMCP does the same in its one process, with a worker in it as its
documentation starts it. Its Redis has its own settings, and loses what is not a minute old. A second process of its
would make it slower here. All are measured in alternating rounds of one run with the same client. The tables have their
medians.
FastMCP's packages are set in an environment of their own, from the lock beside its server. Without Redis on the PATH,
or without a registry, it is left out, and that is said.

Besides, how many claims a second workers make that have nothing else to do, where 1, 10 and 100 of them wait for work.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
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
import structlog
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.benchmarks.beside import Comparison, Side, add_option, both, rounds_of
from tests.benchmarks.claims import Claiming, claiming
from tests.benchmarks.load import OWN_INTERPRETER
from tests.kit.ports import free_port
from tests.kit.postgres import postgres_server
from tests.kit.venv import InstallError, environment_of

HERE = Path(__file__).parent
APP = HERE / "tasks_app.py"
FASTMCP = HERE / "fastmcp"
CLIENTS = (1, 8, 32)
WARM_UP = 1.5
AIM = 4.0
"""Times FastMCP's tasks a second, on PostgreSQL."""
REFERENCE, POSTGRESQL, SQLITE = "FastMCP on Redis", "mcpfleet on PostgreSQL", "mcpfleet on SQLite"


@dataclass
class Round:
    """The figures of one round."""

    rate: float
    middle: float
    """Milliseconds of a task, the median."""
    late: float
    """Milliseconds below which 99 of 100 tasks stay."""
    spent: float
    """CPU milliseconds a task of all that take part."""


@dataclass
class Subject:
    """Something that is measured."""

    name: str
    url: str
    processes: Sequence[psutil.Process]
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    """By the number of clients."""

    def spent(self) -> float:
        """CPU seconds of all processes until now."""
        family = {child.pid: child for each in self.processes for child in (each, *each.children(recursive=True))}
        times = [process.cpu_times() for process in family.values()]
        return float(sum(each.user + each.system for each in times))

    def median(self, clients: int, figure: str) -> float:
        """The middle one of a figure's rounds."""
        return float(statistics.median(getattr(each, figure) for each in self.rounds[clients]))


async def measure(subject: Subject, clients: int, seconds: float) -> Round:
    """Put a load on a subject for a while."""
    before = subject.spent()
    command = [sys.executable, "-m", "tests.benchmarks.task_load", subject.url, str(clients), str(seconds)]
    done = json.loads((await anyio.run_process(command, stderr=None)).stdout)
    if done["wrong"]:
        raise SystemExit(f"{subject.name}: {done['wrong']} of {done['right'] + done['wrong']} tasks went wrong")
    took = sorted(done["took"])
    return Round(
        rate=done["right"] / done["seconds"],
        middle=statistics.median(took),
        late=took[int(len(took) * 0.99)],
        spent=(subject.spent() - before) / done["right"] * 1e3,
    )


@asynccontextmanager
async def process(command: Sequence[str], port: int, **environment: str) -> AsyncIterator[psutil.Process]:
    """Run a process until the end of the block, which begins when its port answers."""
    quiet = subprocess.DEVNULL
    async with await anyio.open_process(command, stdout=quiet, stdin=quiet, env={**os.environ, **environment}) as child:
        try:
            with anyio.fail_after(30):
                while True:
                    try:
                        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                        break
                    except OSError:
                        await anyio.sleep(0.05)
            yield psutil.Process(child.pid)
        finally:
            child.terminate()


async def reference(stack: AsyncExitStack) -> Subject | None:
    """Start FastMCP on Redis; none where there is no Redis, or the packages cannot be had."""
    redis = shutil.which("redis-server")
    if redis is None:
        say("FastMCP is left out: there is no redis-server on the PATH (Debian: apt-get install redis-server)")
        return None
    try:
        python = await anyio.to_thread.run_sync(environment_of, FASTMCP / "requirements.lock")
    except InstallError as error:
        say(f"FastMCP is left out: {error}")
        return None
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpfleet-redis-"))
    port = free_port()
    store = await stack.enter_async_context(process([redis, "--port", str(port), "--dir", folder], port))
    settings = {"FASTMCP_DOCKET_URL": f"redis://127.0.0.1:{port}/0", "FASTMCP_DOCKET_CONCURRENCY": "24"}
    own = free_port()
    command = [str(python), str(FASTMCP / "server.py"), "server", str(own)]
    server = await stack.enter_async_context(process(command, own, **settings))
    return Subject(REFERENCE, f"http://127.0.0.1:{own}/mcp", [server, store])


async def ours(stack: AsyncExitStack, name: str, store: str | None, *beside: psutil.Process) -> tuple[Subject, Fleet]:
    """Start a fleet on a store."""
    environment = OWN_INTERPRETER if store is None else {**OWN_INTERPRETER, "MCPFLEET_STORE_URL": store}
    fleet = await stack.enter_async_context(Fleet(APP, environment=environment))
    children = (*fleet.edges, *fleet.workers, *fleet.service_processes, fleet.nats)
    return Subject(name, fleet.urls[0], [*beside, *(psutil.Process(child.pid) for child in children)]), fleet


async def compare(other: Path, rounds: int, seconds: float) -> None:
    """Measure this tree's fleets beside another's, and print how they compare; the one client's load, and the most."""
    comparison = Comparison("tasks, create to completed", other, rounds)

    async def load(clients: int, store: Sequence[psutil.Process], side: Side) -> dict[str, float]:
        found = await measure(Subject(side.tree.commit, side.url, [*store, side.launcher]), clients, seconds)
        return {"tasks/s": found.rate, "p50 µs": found.middle * 1e3, "CPU µs a task": found.spent * 1e3}

    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(postgres_server(durable=True))
        urls = [await stack.enter_async_context(postgres.database()) for _ in range(2)]
        on_postgres = [{"MCPFLEET_STORE_URL": url} for url in urls]
        for name, settings, store in ((POSTGRESQL, on_postgres, [postgres.process]), (SQLITE, [{}], [])):
            async with both(other, APP, *settings) as sides:
                for clients in (CLIENTS[0], CLIENTS[-1]):
                    await comparison.measure(
                        f"{name}, {clients} {'client' if clients == 1 else 'clients'}",
                        sides,
                        partial(load, clients, store),
                    )
    comparison.show()


async def main(rounds: int, seconds: float, *, only_ours: bool) -> None:
    """Measure in alternating rounds, and print the medians."""
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(postgres_server(durable=True))
        url = await stack.enter_async_context(postgres.database())
        first, fleet = await ours(stack, POSTGRESQL, url, postgres.process)
        second, _ = await ours(stack, SQLITE, None)
        beside = None if only_ours else await reference(stack)
        subjects = [first, second] if beside is None else [beside, first, second]
        for subject in subjects:
            await measure(subject, CLIENTS[-1], WARM_UP)
        for _ in range(rounds):
            for clients in CLIENTS:
                for subject in subjects:
                    subject.rounds.setdefault(clients, []).append(await measure(subject, clients, seconds))
        show(subjects)
        show_claims([await claiming(fleet, waiting, seconds) for waiting in (1, 10, 100)])


def show(subjects: Sequence[Subject]) -> None:
    """Print a table for each number of clients."""
    for clients in CLIENTS:
        table = Table(title=f"tasks, create to completed, {clients} clients", highlight=False)
        for heading in ("", "tasks/s", "of FastMCP", "p50 ms", "p99 ms", "CPU ms a task"):
            table.add_column(heading, justify="left" if not heading else "right")
        for subject in subjects:
            rate = subject.median(clients, "rate")
            ratio = f"{rate / subjects[0].median(clients, 'rate'):.1f}" if subjects[0].name == REFERENCE else ""
            figures = (f"{subject.median(clients, name):,.1f}" for name in ("middle", "late", "spent"))
            table.add_row(subject.name, f"{rate:,.0f}", ratio, *figures)
        Console(width=110).print(table)
    if subjects[0].name == REFERENCE:
        reached = subjects[1].median(CLIENTS[-1], "rate") / subjects[0].median(CLIENTS[-1], "rate")
        slower = subjects[1].median(1, "middle") / subjects[0].median(1, "middle")
        say(
            f"{reached:.1f} times its tasks a second at {CLIENTS[-1]} clients (the aim is {AIM:g}), and {slower:.2f} of"
        )
        say("its latency at one (the aim is 1 at most)")


def show_claims(found: Sequence[Claiming]) -> None:
    """Print what waiting workers claimed."""
    table = Table(title="claims on PostgreSQL", highlight=False)
    for heading in ("workers", "tasks claimed/s", "claims asked/s", "claims/s without work", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            str(each.workers), f"{each.rate:,.0f}", f"{each.asked:,.0f}", f"{each.idle:,.1f}",
            f"{each.middle:,.1f}", f"{each.late:,.1f}",
        )  # fmt: skip
    Console(width=110).print(table)


def say(text: str) -> None:
    """Print a line."""
    Console(width=110, highlight=False).print(text, markup=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="3 by default, and 20 of two trees")
    parser.add_argument("--seconds", type=float, help="3 by default, and 1.5 of two trees")
    parser.add_argument("--only-ours", action="store_true")
    add_option(parser)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

    async def run() -> None:
        """Run it."""
        rounds = rounds_of(options, 3)
        if options.beside is None:
            await main(rounds, options.seconds or 3.0, only_ours=options.only_ours)
        else:
            await compare(options.beside, rounds, options.seconds or 1.5)

    anyio.run(run)
