"""Tasks while processes are killed: a worker, a tasks replica, an edge, NATS, at random, and started again.

    .venv/bin/python -m tests.chaos.tasks --tasks 1000 --seed 7

Clients make tasks at any of three edges, and read them at whichever edge is up. Any of three workers runs them, over
two processes of services on PostgreSQL. Each task must end once with its right result, and stay so. A handle that was
given is never unknown. A step's effect, in a system that knows the keys of its callers, is there once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from rich.console import Console

from mcpfleet.testing.fleet import Fleet
from tests.chaos.tasking import Makers, Notes
from tests.kit.postgres import Postgres, postgres_server
from tests.kit.restarting import restart_services

APP = Path(__file__).with_name("tasks_app.py")
WAYS = ("worker", "services", "edge", "NATS")
THRICE = 3
SHORT: Mapping[str, str] = {
    "MCPFLEET_TASK_LEASE": "2", "MCPFLEET_TASK_EXTENDS": "0.5", "MCPFLEET_TASKS_SWEEP": "0.2",
    "MCPFLEET_TASKS_AWAY": "1",
}  # fmt: skip
"""Settings under which a worker's death is known sooner."""


@dataclass
class Found:
    """The outcome."""

    makers: Makers
    notes: Notes
    killed: Counter[str]
    victims: set[int]
    """The processes of workers that were killed."""
    seconds: float

    @property
    def thrice(self) -> list[int]:
        """Tasks whose worker was killed three times in a row: those end as having crashed it, and rightly so."""
        runs = self.notes.runs
        return [
            kept.number
            for kept in self.makers.wrong
            if "crashed its worker" in str(kept.end)
            and len(runs.get(kept.number, ())) == THRICE
            and self.victims.issuperset(runs[kept.number])
        ]

    @property
    def broken(self) -> dict[str, list[str]]:
        """The promises that do not hold."""
        makers = self.makers
        doubled = [str(number) for number in self.notes.doubled]
        wrong = [f"{kept.number}: {kept.end}" for kept in makers.wrong if kept.number not in self.thrice]
        lists = {
            "not ended rightly": wrong, "changed after its end": makers.changed,
            "unknown": makers.unknown, "odd": makers.odd, "effects twice": doubled,
        }  # fmt: skip
        return {name: found for name, found in lists.items() if found}


class Killing:
    """Kills parts of a fleet and starts them again, each kind once and then at random, until told to end."""

    def __init__(self, fleet: Fleet, chance: random.Random, pause: float) -> None:
        self.killed: Counter[str] = Counter()
        self.down: set[str] = set()
        """URLs of edges that are being killed, until they are back."""
        self._fleet = fleet
        self._chance = chance
        self._pause = pause
        self._starting: set[str] = set()
        self.victims: set[int] = set()
        """The processes of workers that were killed."""

    def urls(self) -> list[str]:
        """The edges that are up."""
        return [url for url in self._fleet.urls if url not in self.down]

    async def run(self, done: anyio.Event) -> None:
        """Kill; what is killed is started at once, and is no one's next victim before it is back."""
        turns = list(WAYS)
        self._chance.shuffle(turns)
        async with anyio.create_task_group() as starting:
            while not done.is_set():
                starting.start_soon(self._kill, turns.pop() if turns else self._chance.choice(WAYS))
                with anyio.move_on_after(self._pause * self._chance.uniform(0.5, 1.5)):
                    await done.wait()

    async def _kill(self, way: str) -> None:
        if way == "NATS":
            if "NATS" not in self._starting:
                await self._restart(way, "NATS", self._fleet.restart_nats())
            return
        parts = {"worker": self._fleet.workers, "services": self._fleet.service_processes, "edge": self._fleet.edges}
        free = [child for child in parts[way] if child.name not in self._starting]
        # One of a kind stays.
        if len(free) > 1:
            child = self._chance.choice(free)
            if way == "worker":
                self.victims.add(child.pid)
            restart = partial(restart_services, self._fleet) if way == "services" else self._fleet.restart
            await self._restart(way, child.name, restart(child, drain=False), child.url)

    async def _restart(self, way: str, name: str, restart: Awaitable[None], url: str | None = None) -> None:
        self.killed[way] += 1
        self._starting.add(name)
        urls = {url} if url is not None else set()
        self.down |= urls
        try:
            await restart
        finally:
            self._starting.discard(name)
            # The edge is ready at another URL by now, and this one's port may be another's some day.
            self.down -= urls


async def kill_while_tasks_run(
    postgres: Postgres,
    folder: Path,
    *,
    tasks: int,
    seed: int,
    longest: float,
    pause: float,
    settings: Mapping[str, str],
) -> Found:
    """Make tasks from 16 clients, and kill parts meanwhile, at least each kind once."""
    chance = random.Random(seed)
    times = [chance.uniform(0.0, longest) for _ in range(tasks)]
    effects = folder / "effects"
    effects.touch()
    async with postgres.database() as url:
        environment = {"CHAOS_EFFECTS": str(effects), "MCPFLEET_STORE_URL": url, **settings}
        async with Fleet(APP, edges=3, workers=3, services=2, environment=environment) as fleet:
            killing = Killing(fleet, chance, pause)
            makers = Makers(killing.urls, times.__getitem__, seed)
            began, done = time.monotonic(), anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(killing.run, done)
                await makers.run(tasks, clients=16)
                done.set()
            return Found(makers, Notes.of(effects), killing.killed, killing.victims, time.monotonic() - began)


def show(found: Found) -> None:
    """Print what came of it."""
    console = Console(width=120, highlight=False)
    runs = Counter(map(len, found.notes.runs.values()))
    console.print(f"{len(found.makers.kept)} tasks in {found.seconds:.0f} s; killed: {dict(found.killed)}")
    console.print(f"runs a task: {dict(sorted(runs.items()))}; answers: {dict(found.makers.told)}")
    console.print(f"killed three times in a row, and so told: {len(found.thrice)}")
    console.print(f"a handle could not be read for {found.makers.longest:.1f} s at most")
    for name, which in found.broken.items():
        console.print(f"{name}: {len(which)}, for example {which[:3]}", markup=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--longest", type=float, default=1.5, help="seconds of the longest task")
    parser.add_argument("--pause", type=float, default=2.5, help="seconds between two kills, about")
    options = parser.parse_args()

    async def run() -> Found:
        """Run it."""
        with postgres_server() as server, tempfile.TemporaryDirectory(prefix="chaos-tasks-") as folder:
            return await kill_while_tasks_run(
                server, Path(folder), tasks=options.tasks, seed=options.seed, longest=options.longest,
                pause=options.pause, settings={},
            )  # fmt: skip

    outcome = anyio.run(run)
    show(outcome)
    sys.exit(bool(outcome.broken))
