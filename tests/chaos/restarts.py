"""Restarts: processes are drained, or killed, and started again at random, while callers call without a pause.

    .venv/bin/python -m tests.chaos.restarts --minutes 10 --rate 100 --seed 7

What callers were told is compared with what really happened. An edge or a worker that drains costs no call at all: the
edge still serves for a second what was on its way to it.
The services are one process here. While it is away, calls may be told that nothing was run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.chaos.callers import Callers, Told

APP = Path(__file__).with_name("app.py")
DRAINS = ("edge drains", "worker drains")
WAYS = (*DRAINS, "edge killed", "worker killed", "services restart", "services killed", "NATS killed")
SETTLE = 3.0
"""Seconds of load after a restart, which count as its own, in the long form."""


@dataclass
class Findings:
    """The outcome of all restarts of one run."""

    times: Counter[str] = field(default_factory=Counter)
    told: dict[str, Counter[Told]] = field(default_factory=dict)
    """The answers during each kind of restart, counted."""
    ghosts: int = 0
    """Effects whose callers were told that they had not run."""
    doubled: int = 0
    """Effects that one call had twice."""
    unclear: set[str] = field(default_factory=set)
    """Answers that are neither a result, nor uncertain, nor not run."""


class Restarts:
    """A fleet of two edges and two workers, whose processes come and go."""

    def __init__(self, fleet: Fleet, effects: Path, rate: float, settle: float) -> None:
        self.fleet = fleet
        self.findings = Findings()
        self._settle = settle
        self._effects = effects
        self._rate = rate

    async def go_through(self, way: str, chance: random.Random) -> None:
        """Restart something in one way, and note what became of the calls meanwhile."""
        callers = Callers(list(self.fleet.urls), self._rate)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(callers.run, 120.0)
            await anyio.sleep(0.5 + chance.random())
            await self._restart(way, chance, callers)
            await anyio.sleep(self._settle)
            callers.is_over = True
        found = self.findings
        found.times[way] += 1
        found.told.setdefault(way, Counter()).update(call.told for call in callers.calls)
        ghosts, doubled = callers.effects(self._effects)
        found.ghosts += ghosts
        found.doubled += doubled
        found.unclear |= {call.text for call in callers.calls if call.told is Told.OTHER}

    async def _restart(self, way: str, chance: random.Random, callers: Callers) -> None:
        part = way.split(maxsplit=1)[0]
        if part == "NATS":
            await self.fleet.restart_nats()
            return
        children = {"edge": self.fleet.edges, "worker": self.fleet.workers, "services": [self.fleet.services]}[part]
        child = chance.choice(children)
        if child.url in callers.urls:
            callers.urls.remove(child.url)
        await self.fleet.restart(child, drain=way in (*DRAINS, "services restart"))
        callers.urls[:] = self.fleet.urls


async def restarts(
    minutes: float, rate: float, seed: int, *, ways: tuple[str, ...] = WAYS, settle: float = SETTLE
) -> Findings:
    """Go through the ways, each once and then at random, for so long."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="restarts-") as folder:
        effects = Path(folder) / "effects"
        effects.touch()
        environment = {"CHAOS_EFFECTS": str(effects), "MCPFLEET_LAME": "1"}
        async with Fleet(APP, edges=2, workers=2, environment=environment) as fleet:
            house = Restarts(fleet, effects, rate, settle)
            for way in ways:
                await house.go_through(way, chance)
            until = time.monotonic() + minutes * 60
            while time.monotonic() < until:
                await house.go_through(chance.choice(ways), chance)
            return house.findings


def show(found: Findings) -> None:
    """Print what came of it."""
    table = Table(title="restarts", highlight=False)
    for heading in ("", "times", *Told):
        table.add_column(str(heading), justify="left" if not heading else "right")
    for way, told in found.told.items():
        table.add_row(way, str(found.times[way]), *(f"{told[each]:,}" for each in Told))
    console = Console(width=120, highlight=False)
    console.print(table)
    console.print(f"ghosts {found.ghosts}, doubled {found.doubled}")
    for text in found.unclear:
        console.print(text, markup=False)


def lost_in_drains(found: Findings) -> int:
    """Calls that did not get their result although nothing but drains went on."""
    drains = [found.told[way] for way in DRAINS if way in found.told]
    return sum(count for told in drains for each, count in told.items() if each is not Told.RESULT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    findings = anyio.run(restarts, options.minutes, options.rate, options.seed)
    show(findings)
    sys.exit(bool(findings.ghosts or findings.doubled or findings.unclear or lost_in_drains(findings)))
