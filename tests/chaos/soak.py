"""A soak of the bus: operations cancelled at random while NATS pauses at random, and what is left of them afterwards.

    .venv/bin/python -m tests.chaos.soak --minutes 20 --seed 7

Every operation of the bus runs inside a cancel scope that may end it at any moment. Afterwards each process must still
hear, and tasks, subscriptions and memory must be where they began.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from nats.aio.subscription import Subscription

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.process.settings import ProcessSettings
from tests.chaos import soaking
from tests.contract.bus.fabric import NatsFabric, by_edges, heard, living

ASK: Final = "catalog.snapshot"
HINT: Final = "hint.catalog.mcp"
UP_WITHIN: Final = 15.0
SETTLED_WITHIN: Final = 10.0


@dataclass(frozen=True)
class Holdings:
    """The resources of a process that may leak."""

    tasks: int
    ours: int
    """Subscriptions in the buses' tables."""
    clients: int
    """Subscriptions of the NATS client that are still alive."""
    megabytes: float = field(compare=False)

    @classmethod
    def now(cls, *buses: Bus) -> Holdings:
        """Count them."""
        megabytes = soaking.megabytes()
        return cls(
            len(asyncio.all_tasks()),
            sum(len(bus.subscriptions) for bus in buses),
            sum(isinstance(thing, Subscription) for thing in gc.get_objects()),
            megabytes,
        )


@dataclass
class Soak:
    """Two processes over a NATS server that pauses."""

    fabric: NatsFabric
    edge: Bus
    catalog: Bus
    chance: random.Random
    pace: float = 1.0
    """How many times as often NATS pauses, and for how many times less."""
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
                await anyio.sleep(self.chance.uniform(1.0, 5.0) / self.pace)
                self.fabric.freeze()
                await anyio.sleep(self.chance.uniform(0.5, 3.0) / self.pace)
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


async def soak(seconds: float, seed: int, *, pace: float = 1.0) -> soaking.Findings[Holdings]:
    """Soak, and see whether both processes still hear.

    Args:
        seconds: how long.
        seed: decides what happens.
        pace: how many times as fast NATS pauses, and a link is dead, as in the long form.

    Raises:
        TimeoutError: one of them does not.
    """
    settings = ProcessSettings(log_level="warning", bus_question_every=2.0 / pace, bus_dead_after=2.0 / pace)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, soaking.small_heap():
        fabric = NatsFabric(Path(folder), settings)
        async with living(fabric), fabric.buses("edge", "catalog") as (edge, catalog):
            hints: deque[Incoming] = deque(maxlen=1)  # the newest: all of them would be what grows
            await catalog.subscribe(
                ASK, lambda question: catalog.respond(question, b"yes"), "catalog", asked_by=by_edges
            )
            await edge.subscribe(HINT, hints.append)
            await heard(edge, catalog)
            used = Soak(fabric, edge, catalog, random.Random(seed), pace)
            found = await soaking.soaked(used.run, partial(_settled, used), used.ended, seconds=seconds, warm=2.0)
            hints.clear()
            catalog.publish(HINT, b"")
            with anyio.fail_after(UP_WITHIN):
                while not hints:  # noqa: ASYNC110  # a list has no event
                    await anyio.sleep(0.01)
            assert (await edge.request(ASK, b"", timeout=5)).body == b"yes"
            fabric.log.entries.clear()
            return found


async def _settled(used: Soak, before: Holdings | None) -> Holdings:
    """Return what is held when both are up again and what was cancelled has ended."""
    with anyio.fail_after(UP_WITHIN):
        while True:
            await used.edge.wait_up()
            await used.catalog.wait_up()
            try:
                if (await used.edge.request(ASK, b"", timeout=2)).body == b"yes":
                    break
            except BusError:
                await anyio.sleep(0.1)

    async def now() -> Holdings:
        return Holdings.now(used.edge, used.catalog)

    return await soaking.settle(now, lambda held: before is None or held == before, within=SETTLED_WITHIN)


if __name__ == "__main__":
    soaking.main(__doc__, soak, minutes=20.0)
