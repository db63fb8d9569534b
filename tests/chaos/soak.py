"""A soak of the bus: operations cancelled at random while NATS pauses at random, and what is left of them afterwards.

    .venv/bin/python -m tests.chaos.soak --minutes 20 --seed 7

Every operation of the bus runs inside a cancel scope that may end it at any moment. Afterwards each process must still
hear, and tasks, subscriptions and memory must be where they began.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import psutil
from nats.aio.subscription import Subscription
from rich.console import Console

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.fabric import NatsFabric, by_edges, heard, living

ASK: Final = "catalog.snapshot"
HINT: Final = "hint.catalog.mcp"
UP_WITHIN: Final = 15.0
SETTLED_WITHIN: Final = 10.0


@dataclass(frozen=True)
class Holdings:
    """What a process holds that may leak."""

    tasks: int
    ours: int
    """Subscriptions in the buses' tables."""
    clients: int
    """Subscriptions of the NATS client that are still alive."""
    megabytes: float

    @classmethod
    def now(cls, *buses: Bus) -> Holdings:
        """Count them."""
        gc.collect()
        return cls(
            len(asyncio.all_tasks()),
            sum(len(bus.subscriptions) for bus in buses),
            sum(isinstance(thing, Subscription) for thing in gc.get_objects()),
            psutil.Process().memory_info().rss / 2**20,
        )


@dataclass
class Soak:
    """Two processes over a NATS server that pauses."""

    fabric: NatsFabric
    edge: Bus
    catalog: Bus
    chance: random.Random
    ended: Counter[str] = field(default_factory=Counter)
    """How operations ended."""

    async def run(self, seconds: float, hands: int = 8) -> None:
        """Use the bus with so many hands for so long."""
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pause_nats)
                for _ in range(hands):
                    tasks.start_soon(self._use)
        self.fabric.thaw()

    async def _pause_nats(self) -> None:
        try:
            while True:
                await anyio.sleep(self.chance.uniform(1.0, 5.0))
                self.fabric.freeze()
                await anyio.sleep(self.chance.uniform(0.5, 3.0))
                self.fabric.thaw()
                self.ended["pause of NATS"] += 1
        finally:
            self.fabric.thaw()

    async def _use(self) -> None:
        operations: list[Callable[[], Awaitable[None]]] = [self._request, self._publish, self._hear_and_leave]
        while True:
            operation = self.chance.choice(operations)
            outcome = "done"
            # Half of them within a time in which they may be anywhere, the rest in one in which they would end.
            with anyio.move_on_after(self.chance.choice([0.0005, 0.002, 0.05, 5.0]) * self.chance.random()) as scope:
                try:
                    await operation()
                except BusError as error:
                    outcome = type(error).__name__
            self.ended[f"{operation.__name__.strip('_')}: {'cancelled' if scope.cancelled_caught else outcome}"] += 1
            await anyio.sleep(0.005 * self.chance.random())

    async def _request(self) -> None:
        await self.edge.request(ASK, b"", timeout=self.chance.uniform(0.5, 3.0), repeat=self.chance.random() < 0.5)

    async def _publish(self) -> None:
        self.catalog.publish(HINT, b"")

    async def _hear_and_leave(self) -> None:
        subscription = await self.edge.subscribe(HINT, lambda _: None)
        try:
            await anyio.sleep(0.01 * self.chance.random())
        finally:
            with anyio.CancelScope(shield=self.chance.random() < 0.5):
                await self.edge.leave(subscription)


@dataclass(frozen=True)
class Findings:
    """What a soak has shown."""

    before: Holdings
    after: Holdings
    ended: Counter[str]
    megabytes: tuple[float, ...]
    """What the process had after each minute: a leak grows with all of them, a buffer that was once full with one."""


async def soak(seconds: float, seed: int) -> Findings:
    """Soak, and see whether both processes still hear.

    Raises:
        TimeoutError: one of them does not.
    """
    settings = ProcessSettings(log_level="warning")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        fabric = NatsFabric(Path(folder), settings)
        async with living(fabric), fabric.buses("edge", "catalog") as (edge, catalog):
            hints: deque[Incoming] = deque(maxlen=1)  # the newest: all of them would be what grows
            await catalog.subscribe(
                ASK, lambda question: catalog.respond(question, b"yes"), "catalog", asked_by=by_edges
            )
            await edge.subscribe(HINT, hints.append)
            await heard(edge, catalog)
            soaking = Soak(fabric, edge, catalog, random.Random(seed))
            await soaking.run(min(2.0, seconds))  # what is made once is made now, and does not count as a leak
            before = await _settled(soaking, None)
            megabytes = []
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                await soaking.run(min(60.0, left))
                megabytes.append((await _settled(soaking, before)).megabytes)
            after = await _settled(soaking, before)
            hints.clear()
            catalog.publish(HINT, b"")
            with anyio.fail_after(UP_WITHIN):
                while not hints:  # noqa: ASYNC110  # a list has no event
                    await anyio.sleep(0.01)
            assert (await edge.request(ASK, b"", timeout=5)).body == b"yes"
            fabric.log.entries.clear()
            return Findings(before, after, soaking.ended, tuple(megabytes))


async def _settled(soaking: Soak, before: Holdings | None) -> Holdings:
    """What is held when both are up again and what was cancelled has had its time to end."""
    with anyio.fail_after(UP_WITHIN):
        while True:
            await soaking.edge.wait_up()
            await soaking.catalog.wait_up()
            try:
                if (await soaking.edge.request(ASK, b"", timeout=2)).body == b"yes":
                    break
            except BusError:
                await anyio.sleep(0.1)
    now = Holdings.now(soaking.edge, soaking.catalog)
    with anyio.move_on_after(SETTLED_WITHIN):
        while before is not None and (now.tasks, now.ours, now.clients) != (before.tasks, before.ours, before.clients):
            await anyio.sleep(0.25)
            now = Holdings.now(soaking.edge, soaking.catalog)
    return now


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    found = anyio.run(soak, options.minutes * 60, options.seed)
    console = Console(width=140, highlight=False)
    for how, times in sorted(found.ended.items()):
        console.print(f"{times:9,}  {how}")
    console.print("MB after each minute: " + " ".join(f"{each:.0f}" for each in found.megabytes))
    console.print(f"before {found.before}\nafter  {found.after}")
    same = (found.before.tasks, found.before.ours, found.before.clients)
    sys.exit(same != (found.after.tasks, found.after.ours, found.after.clients))
