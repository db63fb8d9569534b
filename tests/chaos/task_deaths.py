"""A worker killed at any moment of a task that has no steps: how long until another one has completed it.

    .venv/bin/python -m tests.chaos.task_deaths --times 6 --lasts 8

A task must be completed within 15 s and its own time of the kill, with the settings that a fleet comes with. The kill
may come at any moment of it: before anything was renewed, between two renewals, right before its end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
from rich.console import Console

from mcpfleet.cli.child import Child
from mcpfleet.testing.fleet import Fleet
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

APP = Path(__file__).with_name("tasks_app.py")
WITHIN = 15.0
"""Seconds beside the task's own."""


@dataclass(frozen=True)
class Death:
    """One kill."""

    moment: float
    """Seconds after the handler had begun."""
    taken: float
    """Seconds from the kill to the end."""
    status: str
    result: str
    runs: int


async def deaths(moments: Sequence[float], *, lasts: float, settings: Mapping[str, str]) -> list[Death]:
    """Kill the worker of one task after another, each at its moment; another worker is there each time."""
    with tempfile.TemporaryDirectory(prefix="chaos-deaths-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        environment = {"CHAOS_EFFECTS": str(notes), **settings}
        async with Fleet(APP, workers=2, environment=environment) as fleet, httpx2.AsyncClient() as http:
            client = TaskClient(http, fleet.urls[0])
            return [
                await _death(fleet, client, notes, number, moment=moment, lasts=lasts)
                for number, moment in enumerate(moments, 1)
            ]


async def _death(fleet: Fleet, client: TaskClient, notes: Path, number: int, *, moment: float, lasts: float) -> Death:
    task = await client.start("plain", number=number, seconds=lasts)
    await until(lambda: bool(_holders(notes, number)), within=10)
    await anyio.sleep(moment)
    victim = _worker(fleet, _holders(notes, number)[0])
    killed = time.monotonic()
    await victim.kill()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_start_again, fleet, victim)
        done = await client.until(task, within=3 * (WITHIN + lasts))
        taken = time.monotonic() - killed
    result = text_of(done) if done["status"] == "completed" else str(done)
    return Death(moment, taken, done["status"], result, len(_holders(notes, number)))


async def _start_again(fleet: Fleet, victim: Child) -> None:
    await fleet.restart(victim, drain=False)


def _holders(notes: Path, number: int) -> list[int]:
    """The processes in which a task ran, in their order."""
    lines = [line.split() for line in notes.read_text().splitlines()]
    return [int(process) for _, said, _, process, _ in lines if int(said) == number]


def _worker(fleet: Fleet, process: int) -> Child:
    [worker] = [worker for worker in fleet.workers if worker.pid == process]
    return worker


def show(found: Sequence[Death], lasts: float) -> bool:
    """Print the kills; returns whether each task was completed in time."""
    console = Console(width=110, highlight=False)
    for each in found:
        console.print(
            f"killed {each.moment:.2f} s into a task of {lasts:g} s: {each.status} {each.taken:.1f} s later, in "
            f"{each.runs} runs"
        )
    return all(each.status == "completed" and each.taken < WITHIN + lasts for each in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--lasts", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    at = [0.0, options.lasts - 0.05, *(chance.uniform(0.0, options.lasts) for _ in range(options.times - 2))]

    async def run() -> bool:
        """Run it."""
        return show(await deaths(at, lasts=options.lasts, settings={}), options.lasts)

    sys.exit(not anyio.run(run))
