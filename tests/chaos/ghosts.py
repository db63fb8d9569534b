"""Ghosts: effects of calls whose callers were told that they had not run. There must be none.

    .venv/bin/python -m tests.chaos.ghosts --rate 200 --pauses 1 3 7 15

Under a steady load each of edge, worker and NATS is paused (SIGSTOP), and edge and worker are cut off from NATS, for
each of the times. What callers were told is compared with what really happened.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import anyio
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.chaos.callers import Callers, Told
from tests.kit.proxy import TcpProxy, keep_proxied

APP = Path(__file__).with_name("app.py")
PARTS = ("worker", "edge", "nats")
SETTLE = 6.0
"""Seconds of load after a part has come back, in the long form; within five of them the fleet must serve again."""


@dataclass(frozen=True)
class Phase:
    """The outcome of one disturbance."""

    name: str
    told: dict[Told, int]
    ghosts: int
    """Effects whose callers were told that they had not run."""
    doubled: int
    """Effects that one call had twice."""
    recovered: float
    """Seconds from the part's return until a call on every edge succeeded."""
    unclear: tuple[str, ...]
    """Answers that are neither a result, nor uncertain, nor not run."""


class Haunted:
    """A fleet whose parts can be paused and cut off, and whose effects are counted."""

    def __init__(self, fleet: Fleet, effects: Path, links: dict[str, TcpProxy]) -> None:
        self.fleet = fleet
        self._effects = effects
        self._links = links

    @contextmanager
    def paused(self, part: str) -> Iterator[None]:
        """Stop a part's process where it is."""
        child = {"edge": self.fleet.edges[0], "worker": self.fleet.workers[0], "nats": self.fleet.nats}[part]
        self.fleet.pause(child)
        try:
            yield
        finally:
            self.fleet.resume(child)

    @contextmanager
    def cut_off(self, part: str) -> Iterator[None]:
        """Hold back every byte between a part and NATS, which nobody is told."""
        link = self._links[f"{part} 1"]
        link.freeze()
        try:
            yield
        finally:
            link.heal()

    async def phase(
        self,
        name: str,
        disturbance: AbstractContextManager[None],
        seconds: float,
        rate: float,
        settle: float = SETTLE,
    ) -> Phase:
        """Disturb under load for so many seconds, and compare what was told with what happened."""
        callers = Callers(self.fleet.urls, rate)
        returned = 0.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(callers.run, 1.0 + seconds + settle)
            await anyio.sleep(1.0)
            with disturbance:
                await anyio.sleep(seconds)
            returned = time.monotonic()
        ghosts, doubled = callers.effects(self._effects)
        return Phase(
            name,
            callers.counts(),
            ghosts=ghosts,
            doubled=doubled,
            recovered=_recovered(callers, returned),
            unclear=tuple(sorted({call.text for call in callers.calls if call.told is Told.OTHER}))[:3],
        )


def _recovered(callers: Callers, returned: float) -> float:
    """Seconds after the return from which on every call that began had its result."""
    failed = [call.asked for call in callers.calls if call.told is not Told.RESULT and call.asked > returned]
    return max(failed, default=returned) - returned


@asynccontextmanager
async def haunted(settings: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[Haunted]:
    """Run a fleet of two edges and two workers, the first of each over a link that can be severed."""
    with tempfile.TemporaryDirectory(prefix="ghosts-") as folder:
        effects = Path(folder) / "effects"
        effects.touch()
        links: dict[str, TcpProxy] = {}
        async with anyio.create_task_group() as tasks:

            async def route(name: str, url: str) -> str:
                if name not in ("edge 1", "worker 1"):
                    return url
                links[name] = await tasks.start(keep_proxied, url)
                return links[name].url

            environment = {"CHAOS_EFFECTS": str(effects), **settings}
            async with Fleet(APP, edges=2, workers=2, environment=environment, route=route) as fleet:
                yield Haunted(fleet, effects, links)
            tasks.cancel_scope.cancel()


async def haunt(pauses: list[float], rate: float) -> list[Phase]:
    """Go through every disturbance, each for every time."""
    async with haunted() as house:
        return [
            await house.phase(f"{part} {how} {seconds:g} s", disturb(part), seconds, rate)
            for seconds in pauses
            for how, disturb, parts in (("paused", house.paused, PARTS), ("cut off", house.cut_off, PARTS[:2]))
            for part in parts
        ]


def show(phases: list[Phase]) -> None:
    """Print what came of it."""
    table = Table(title="ghosts", highlight=False)
    for heading in ("", *Told, "ghosts", "doubled", "recovered after s"):
        table.add_column(str(heading), justify="left" if not heading else "right")
    for phase in phases:
        counts = [str(phase.told[told]) for told in Told]
        table.add_row(phase.name, *counts, str(phase.ghosts), str(phase.doubled), f"{phase.recovered:.1f}")
    console = Console(width=140)
    console.print(table)
    for phase in phases:
        for text in phase.unclear:
            console.print(f"{phase.name}: {text}", markup=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--pauses", type=float, nargs="+", default=[1.0, 3.0, 7.0, 15.0])
    options = parser.parse_args()
    found = anyio.run(haunt, options.pauses, options.rate)
    show(found)
    sys.exit(any(phase.ghosts or phase.unclear for phase in found))
