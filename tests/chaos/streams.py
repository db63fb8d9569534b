"""Listen streams that open, die and close at random, while edges die too: what is left of them afterwards. Nothing.

    .venv/bin/python -m tests.chaos.streams --minutes 60 --seed 7

A whole fleet lives in this process, over a real NATS. Afterwards the streams of the edges, the counts in the store, the
subscriptions to NATS, tasks and memory must be where they began.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import httpx2
from sqlalchemy import func, select

from mcpfleet.app import App
from mcpfleet.bus.bus import Bus
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.subscriptions.repository import StreamRepository
from mcpfleet.subscriptions.tables import counts
from mcpfleet.testing.local import LocalFleet
from tests.chaos import soaking
from tests.contract.fleet.listener import ACK, Listener

SETTLED_WITHIN: Final = 40.0
"""Seconds in which all that was left is closed, on a machine that has much else to do."""
EDGES: Final = 2
BOOKS: Final = [f"library://books/{number}" for number in range(100)]
TOKENS: Final = [{"token": f"secret-{name}", "subject": name, "audience": "mcp"} for name in ("ann", "bob", "cay")]
ENVIRONMENT: Final = {
    "MCPFLEET_AUTHORIZATION": "static",
    "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS}),
    "MCPFLEET_PARTITION_STREAMS": "20",
    "MCPFLEET_PERMISSION_LASTS": "2",
    "MCPFLEET_WATCHED_KEYS": "30",
    "MCPFLEET_EDGE_LOST": "3",
    "MCPFLEET_SUBSCRIPTIONS_SWEEP": "0.5",
    "MCPFLEET_LOG_LEVEL": "error",
}
"""Bounds that are reached, and times that are over soon."""
Kind = TypeVar("Kind")


def alive(kind: type[Kind]) -> list[Kind]:
    """All objects of a class that this process still holds."""
    return [thing for thing in gc.get_objects() if isinstance(thing, kind)]


@dataclass(frozen=True)
class Holdings:
    """The resources of a fleet that may leak."""

    streams: int
    counted: int
    """In the store."""
    subscriptions: int
    tasks: int
    megabytes: float = field(compare=False)

    @classmethod
    async def now(cls) -> Holdings:
        """Count them; what has died is not there any more."""
        megabytes = soaking.megabytes()
        [repository] = alive(StreamRepository)
        async with repository._store.write() as connection:  # what is counted is asked for by nobody else
            counted = await connection.scalar(select(func.coalesce(func.sum(counts.c.streams), 0)))
        hubs = alive(Hub)
        return cls(
            sum(map(len, hubs)),
            int(counted or 0),
            sum(len(bus.subscriptions) for bus in alive(Bus) if bus.is_up),
            len(asyncio.all_tasks()),
            megabytes,
        )


@dataclass
class Crowd:
    """Clients that listen for a while, and things that happen."""

    fleet: LocalFleet
    app: App
    chance: random.Random
    pace: float = 1.0
    """How many times as often an edge dies."""
    ended: Counter[str] = field(default_factory=Counter)
    """How streams ended, and what happened."""

    async def run(self, seconds: float, hands: int) -> None:
        """Open, die and close for so long."""
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._change)
                tasks.start_soon(self._kill)
                for _ in range(hands):
                    tasks.start_soon(self._listen)
        # There must be as many as at first: a worker subscribes once for each definition, and so does each edge.
        self._have_extra(False)
        for edge in [edge for edge in self.fleet.edges if edge.is_running][EDGES:]:
            await edge.kill()
        self.fleet.forget_ended()

    def _have_extra(self, there: bool) -> None:
        if "extra" in self.app.tools and not there:
            self.app.remove("tool", "extra")
        elif "extra" not in self.app.tools and there:
            self.app.tool("extra")(_extra)

    def _living(self) -> list[int]:
        return [number for number, edge in enumerate(self.fleet.edges) if edge.is_running]

    async def _listen(self) -> None:
        while True:
            stream, notifications = Listener(self.chance.choice([1, "1", 2])), self._wanted()
            token = str(self.chance.choice(TOKENS)["token"])
            outcome = "left"
            with anyio.move_on_after(self.chance.choice([0.005, 0.1, 1.0, 5.0]) * self.chance.random()):
                try:
                    async with self.fleet.http(self.chance.choice(self._living())) as http:
                        await stream.run(http, "/mcp", notifications, token)
                    outcome = "ended" if stream.status == 200 else str(stream.status)
                except httpx2.HTTPError as error:
                    outcome = type(error).__name__
            assert stream.kinds()[:1] in ([], [ACK]), stream.kinds()
            self.ended[outcome] += 1
            await anyio.sleep(0.01 * self.chance.random())

    def _wanted(self) -> dict[str, Any]:
        uris = self.chance.sample(BOOKS, self.chance.randint(0, 10))
        return {"resourceSubscriptions": uris, "toolsListChanged": self.chance.random() < 0.5}

    async def _change(self) -> None:
        """Publish all the time, and add and remove a tool at times."""
        while True:
            await anyio.sleep(0.02 * self.chance.random())
            self.app.publish(self.chance.choice(BOOKS))
            self.ended["change"] += 1
            if self.chance.random() < 0.01:
                self._have_extra("extra" not in self.app.tools)

    async def _kill(self) -> None:
        """Have one edge die at times, and another come."""
        while True:
            await anyio.sleep(self.chance.uniform(3.0, 10.0) / self.pace)
            await self.fleet.add_edge()
            await self.fleet.edges[self._living()[0]].kill()
            self.fleet.forget_ended()
            self.ended["death of an edge"] += 1


async def _extra() -> str:
    """Come and go."""
    return "extra"


def library() -> App:
    """An application whose books can be watched."""
    app = App("library", version="1.0.0")

    @app.resource("library://books/{book}")
    async def book(book: int) -> str:
        """A book."""
        return f"book {book}"

    @app.tool()
    async def look() -> str:
        """Look around."""
        return "books"

    @app.watched
    async def follow(uris: frozenset[str]) -> None:
        """Follow what is watched."""

    return app


async def soak(seconds: float, seed: int, *, pace: float = 1.0, hands: int = 40) -> soaking.Findings[Holdings]:
    """Let a crowd come and go, and look what is left.

    Args:
        seconds: how long.
        seed: decides what happens.
        pace: how many times as often an edge dies as in the long form.
        hands: how many clients listen at once.
    """
    app = library()
    with soaking.small_heap():
        async with LocalFleet(app, edges=EDGES, environment=ENVIRONMENT, nats=True) as fleet:
            crowd = Crowd(fleet, app, random.Random(seed), pace)
            use = partial(crowd.run, hands=hands)
            return await soaking.soaked(use, _settled, crowd.ended, seconds=seconds, warm=3.0 / pace)


async def _settled(before: Holdings | None) -> Holdings:
    """Return what is held once nobody listens and the dead are forgotten."""
    if before is not None:
        return await soaking.settle(Holdings.now, lambda held: held == before, within=SETTLED_WITHIN)
    await soaking.settle(Holdings.now, lambda held: not (held.streams or held.counted), within=SETTLED_WITHIN)
    return await soaking.steady(Holdings.now, within=SETTLED_WITHIN)


if __name__ == "__main__":
    soaking.main(__doc__, soak, minutes=60.0)
