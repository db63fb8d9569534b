"""A worker that is stopped for longer than its lease, right before steps of its tasks, and goes on after it.

    .venv/bin/python -m tests.chaos.sleepers --stops 5 --tasks 4

Each task waits a while, and then has an effect in a step; half of them do it in threads. Their worker is stopped
meanwhile, as by a debugger, a frozen container or a laptop's lid. Another one takes the tasks over. The first goes on
when its tasks' waits are over, so that each of its steps is due at once. None may have its effect a second time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
from rich.console import Console

from mcpfleet.cli.child import Child
from mcpfleet.testing.fleet import Fleet
from tests.chaos.tasks import SHORT
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

APP = Path(__file__).with_name("tasks_app.py")
TOOLS = ("slow", "blocking")


@dataclass
class Stops:
    """The outcome of the tasks."""

    effects: Counter[int] = field(default_factory=Counter)
    """By each task's number."""
    runs: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """Tasks that did not end rightly."""

    @property
    def doubled(self) -> list[int]:
        """Tasks whose step had its effect more than once."""
        return sorted(number for number, times in self.effects.items() if times > 1)

    @property
    def taken_over(self) -> int:
        """Tasks that ran on two workers."""
        return sum(times > 1 for times in self.runs.values())


async def stop_and_go_on(*, stops: int, tasks: int, lasts: float, settings: Mapping[str, str]) -> Stops:
    """Stop the worker of so many tasks, let another one take them over, and let the first go on; as often as said."""
    found = Stops()
    with tempfile.TemporaryDirectory(prefix="chaos-sleepers-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        environment = {"CHAOS_EFFECTS": str(notes), **settings}
        async with Fleet(APP, workers=1, environment=environment) as fleet, httpx2.AsyncClient() as http:
            client = TaskClient(http, fleet.urls[0])
            for number in range(stops):
                numbers = range(number * tasks, (number + 1) * tasks)
                found.wrong += await _stop(fleet, client, notes, numbers, lasts)
        for line in notes.read_text().splitlines():
            what, number_of, *_ = line.split()
            (found.effects if what == "effect" else found.runs)[int(number_of)] += 1
    return found


async def _stop(fleet: Fleet, client: TaskClient, notes: Path, numbers: range, lasts: float) -> list[str]:
    """Returns what did not end rightly."""
    [victim] = fleet.workers
    made: dict[int, str] = {}
    for number in numbers:
        made[number] = await client.start(TOOLS[number % len(TOOLS)], number=number, seconds=lasts)
    await until(lambda: _runs(notes, numbers) == len(numbers), within=10)
    fleet.pause(victim)
    other = await fleet.add_worker(APP)
    # The other one has begun all of them: by then the first has lost them, and waits are over before its steps.
    await until(lambda: _runs(notes, numbers) == 2 * len(numbers), within=60)
    fleet.resume(victim)
    wrong = []
    for number, task in made.items():
        done = await client.until(task, within=60)
        if done["status"] != "completed" or text_of(done) != str(2 * number):
            wrong.append(f"{number}: {done}")
    await anyio.sleep(lasts)
    await _leave(fleet, other)
    return wrong


async def _leave(fleet: Fleet, worker: Child) -> None:
    await worker.stop(10)
    fleet.workers.remove(worker)


def _runs(notes: Path, numbers: range) -> int:
    lines = [line.split() for line in notes.read_text().splitlines()]
    return sum(line[0] == "run" and int(line[1]) in numbers for line in lines)


def show(found: Stops) -> bool:
    """Print what came of it; returns whether no step had its effect twice."""
    console = Console(width=110, highlight=False)
    console.print(f"{len(found.runs)} tasks, {found.taken_over} taken over; effects twice: {found.doubled}")
    for each in found.wrong:
        console.print(each, markup=False)
    return not found.doubled and not found.wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--lasts", type=float, default=1.0, help="seconds before each task's step")
    parser.add_argument("--long", action="store_true", help="with the settings that a fleet comes with")
    options = parser.parse_args()

    async def run() -> bool:
        """Run it."""
        settings = {} if options.long else SHORT
        return show(
            await stop_and_go_on(stops=options.stops, tasks=options.tasks, lasts=options.lasts, settings=settings)
        )

    sys.exit(not anyio.run(run))
