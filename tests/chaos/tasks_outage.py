"""Tasks while PostgreSQL stands still, or is stopped and started again.

    .venv/bin/python -m tests.chaos.tasks_outage --seconds 10

Workers hold tasks that outlast the outage, and clients make more all along. Nobody could renew a lease meanwhile, and
none lapses for that. No live task is started a second time, none loses an attempt, and nothing that was acknowledged is
lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import asyncpg  # type: ignore[import-untyped]  # it ships no types
from rich.console import Console

from mcpfleet.testing.fleet import Fleet
from tests.chaos.tasking import Makers, Notes
from tests.kit.postgres import Postgres, postgres_server
from tests.kit.waiting import until

APP = Path(__file__).with_name("tasks_app.py")
Way = Literal["paused", "stopped"]
LONG = 24
"""Tasks that run when the outage begins, and after its end."""


@dataclass
class Outage:
    """The outcome."""

    makers: Makers
    notes: Notes
    attempts: int
    """Attempts that counted, of all tasks."""
    vanished: int
    seconds: float
    """From the end of the outage to the end of all tasks."""

    @property
    def again(self) -> list[int]:
        """Tasks that were started twice."""
        return [number for number, runs in self.notes.runs.items() if len(runs) > 1]

    @property
    def is_whole(self) -> bool:
        """Whether all that was promised is so."""
        makers = self.makers
        broken = (self.again, makers.wrong, makers.changed, makers.unknown, makers.odd, self.notes.doubled)
        return not any(broken) and not self.attempts and not self.vanished


async def stand_still(
    postgres: Postgres, folder: Path, way: Way, *, seconds: float, lasts: float, tasks: int, settings: Mapping[str, str]
) -> Outage:
    """Have PostgreSQL stand still for so long, while tasks run that last so long, and more are made."""
    effects = folder / f"effects-{way}"
    effects.touch()
    async with postgres.database() as url:
        environment = {"CHAOS_EFFECTS": str(effects), "MCPFLEET_STORE_URL": url, **settings}
        async with Fleet(APP, workers=2, services=2, environment=environment) as fleet:
            makers = Makers(lambda: fleet.urls, lambda number: lasts if number < LONG else 0.2, seed=1)
            async with anyio.create_task_group() as group:
                group.start_soon(makers.run, LONG + tasks, LONG + 4)
                await until(lambda: len(Notes.of(effects).runs) >= LONG, within=20)
                await _outage(postgres, way, seconds)
                back = time.monotonic()
            attempts, vanished = await _counted(url)
            return Outage(makers, Notes.of(effects), attempts, vanished, time.monotonic() - back)


async def _outage(postgres: Postgres, way: Way, seconds: float) -> None:
    if way == "paused":
        postgres.pause()
        try:
            await anyio.sleep(seconds)
        finally:
            postgres.resume()
        return
    await postgres.stop()
    try:
        await anyio.sleep(seconds)
    finally:
        await postgres.start()


async def _counted(url: str) -> tuple[int, int]:
    connection = await asyncpg.connect(url)
    try:
        row = await connection.fetchrow("SELECT sum(attempts) AS attempts, sum(vanished) AS vanished FROM tasks_states")
        return row["attempts"], row["vanished"]
    finally:
        await connection.close()


def show(way: str, found: Outage) -> None:
    """Print what came of it."""
    console = Console(width=120, highlight=False)
    makers = found.makers
    slowest = max((kept.ended - kept.asked for kept in makers.kept.values()), default=0.0)
    console.print(
        f"{way}: {len(makers.kept)} tasks, started again {len(found.again)}, attempts lost {found.attempts}, "
        f"not ended rightly {len(makers.wrong)}, unknown {len(makers.unknown)}, odd {len(makers.odd)}, changed "
        f"{len(makers.changed)}, effects twice {len(found.notes.doubled)}"
    )
    console.print(
        f"  all had ended {found.seconds:.1f} s after the outage, the slowest in {slowest:.1f} s; a handle was not "
        f"readable for {makers.longest:.1f} s at most; answers {dict(Counter(makers.told))}"
    )
    for text in (*(str(kept.end) for kept in makers.wrong), *makers.unknown, *makers.odd)[:5]:
        console.print(text, markup=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()

    async def run() -> bool:
        """Run both ways."""
        is_whole = True
        with postgres_server() as server, tempfile.TemporaryDirectory(prefix="chaos-outage-") as folder:
            for way in ("paused", "stopped"):
                found = await stand_still(
                    server, Path(folder), way, seconds=options.seconds, lasts=options.seconds + 5.0,
                    tasks=options.tasks, settings={},
                )  # fmt: skip
                show(way, found)
                is_whole = is_whole and found.is_whole
        return is_whole

    sys.exit(not anyio.run(run))
