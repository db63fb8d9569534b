"""Sessions of clients of 2025 at random edges, while edges die and subscriptions restarts: what they are told is right.

    .venv/bin/python -m tests.chaos.sessions --minutes 60 --seed 7

A whole fleet lives in this process, over a real NATS. Clients shake hands, call, are asked and answer at other edges,
subscribe, open and cut streams, take calls back, delete their sessions or vanish. Each outcome must be a right one.
Then streams, their counts in the store, the rows of sessions, what edges hold of them, subscriptions to NATS, tasks and
memory must be where they began.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import httpx2
from anyio.abc import TaskGroup

from mcpfleet.app import App, Context
from mcpfleet.bus.bus import Bus
from mcpfleet.edge.sessions.elicitation import ClientRequests
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.in_flight import InFlightRequests
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.subscriptions.uri_hints import UriHints
from mcpfleet.testing.local import LocalFleet
from tests.chaos import soaking
from tests.chaos.guests import Guest, Wrong
from tests.contract.fleet.sessions_app import asking

SETTLED_WITHIN: Final = 30.0
EDGES: Final = 3
LINGERS: Final = 3.0
ENVIRONMENT: Final = {
    "MCPFLEET_SESSION_IDLE": "4",
    "MCPFLEET_SESSION_KEPT": "0.3",
    "MCPFLEET_SESSION_ENTRIES": "20",
    "MCPFLEET_SESSION_CHECKED": "0.5",
    "MCPFLEET_ANSWER_WAIT": "10",
    "MCPFLEET_EDGE_LOST": "2",
    "MCPFLEET_SUBSCRIPTIONS_SWEEP": "0.3",
    "MCPFLEET_SLOTS": "60",
    "MCPFLEET_LOG_LEVEL": "error",
}
"""Bounds that are reached, and times that are over soon: a session may be idle for as long as a request may take."""
_BALANCED: Final = 0.98
WRONG: Final = "wrong: "
"""How outcomes begin that there must not be."""
MISTAKES: Final = (
    "request failed",
    "session not followed",
    "handler failed",
    "question failed",
    "service failed",
)
"""Log events that there must not be."""
Kind = TypeVar("Kind")


def alive(kind: type[Kind]) -> list[Kind]:
    """All objects of a class that this process still holds."""
    return [thing for thing in gc.get_objects() if isinstance(thing, kind)]


@dataclass(frozen=True)
class Holdings:
    """The resources of a fleet that may leak."""

    streams: int
    counted: int
    """Streams in the store."""
    rows: int
    """Rows of sessions and of their subscriptions."""
    kept: int
    """Open requests, questions and streams of sessions that edges hold."""
    subscriptions: int
    tasks: int
    megabytes: float = field(compare=False)

    @classmethod
    async def now(cls, fleet: LocalFleet) -> Holdings:
        """Count them; what has died is not there any more."""
        megabytes = soaking.megabytes()
        kept = sum(len(each._open) + len(each._tokens) for each in alive(InFlightRequests))
        kept += sum(len(each._waiting) for each in alive(ClientRequests))
        kept += sum(len(each._local) + len(each._stale) for each in alive(SessionStreams))
        return cls(
            sum(map(len, alive(Hub))),
            _stored(fleet, "coalesce(sum(streams), 0)", "counts"),
            _stored(fleet, "count(*)", "sessions") + _stored(fleet, "count(*)", "session_uris"),
            kept,
            sum(len(bus.subscriptions) for bus in alive(Bus) if bus.is_up),
            len(asyncio.all_tasks()),
            megabytes,
        )

    @property
    def is_idle(self) -> bool:
        """Whether nobody is there."""
        return not (self.streams or self.counted or self.rows or self.kept)


def _stored(fleet: LocalFleet, what: str, table: str) -> int:
    url = fleet.subscriptions.process.settings.store_url.get_secret_value()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        [number] = connection.execute(f"SELECT {what} FROM subscriptions_{table}").fetchone()
    return int(number)


@dataclass
class Crowd:
    """Clients with sessions, and things that happen."""

    fleet: LocalFleet
    chance: random.Random
    pace: float = 1.0
    """How many times as often something dies."""
    ended: Counter[str] = field(default_factory=Counter)
    """How what was done ended, and what happened."""
    _https: list[httpx2.AsyncClient] = field(default_factory=list)
    _quakes: int = 0
    _shaking: int = 0
    """The number of parts that are dying now."""
    _is_over: bool = False

    async def run(self, seconds: float, hands: int) -> None:
        """Come and go for so long; then half of the clients vanish, and the others end what they have begun."""
        self._https.clear()
        self._is_over = False
        async with AsyncExitStack() as self._stack:
            await self._see_edges()
            async with anyio.create_task_group() as happening:
                happening.start_soon(self._kill)
                happening.start_soon(self._restart)
                async with anyio.create_task_group() as staying:
                    _start(staying, self._visit, hands // 2)
                    with anyio.move_on_after(seconds):
                        async with anyio.create_task_group() as vanishing:
                            _start(vanishing, self._visit, hands // 2)
                    self._is_over = True
                happening.cancel_scope.cancel()

    async def _see_edges(self) -> None:
        while len(self._https) < len(self.fleet.edges):
            self._https.append(await self._stack.enter_async_context(self.fleet.http(len(self._https))))

    def _edge(self) -> int:
        """One of the edges that live; few come to one that drains, as behind a balancer."""
        alive = [(number, edge) for number, edge in enumerate(self.fleet.edges[: len(self._https)]) if edge.is_running]
        good = [number for number, edge in alive if not edge.process.stopping.is_set()]
        return self.chance.choice(good) if self.chance.random() < _BALANCED else self.chance.choice(alive)[0]

    async def _kill(self) -> None:
        """Have one edge die or drain at times, and another come."""
        while True:
            await anyio.sleep(self.chance.uniform(1.0, 5.0) / self.pace)
            await self.fleet.add_edge()
            await self._see_edges()
            oldest = next(edge for edge in self.fleet.edges if edge.is_running)
            kills = self.chance.random() < 0.7
            with self._quake():
                await (oldest.kill() if kills else oldest.stop())
            self.ended["death of an edge" if kills else "drain of an edge"] += 1

    async def _restart(self) -> None:
        """Have subscriptions die at times, and come back over its store."""
        while True:
            await anyio.sleep(self.chance.uniform(2.0, 12.0) / self.pace)
            with self._quake():
                await self.fleet.restart_subscriptions()
            self.ended["restart of subscriptions"] += 1

    @contextmanager
    def _quake(self) -> Iterator[None]:
        self._shaking += 1
        try:
            yield
        finally:
            self._shaking -= 1
            self._quakes += 1

    def _look_for_quakes(self) -> int:
        """A number that is the same twice only where nothing has died in between."""
        self._quakes += bool(self._shaking)
        return self._quakes

    async def _visit(self) -> None:
        """Have one session after another."""
        while not self._is_over:
            guest = Guest(self._https, self._edge, self._look_for_quakes, self.chance.random())
            try:
                self._note(await guest.do_this(guest.arrive))
                if guest.session is not None:
                    await self._stay(guest)
            except Wrong as wrong:
                self._note(f"{WRONG}{wrong}")
            await anyio.sleep(0.05 * self.chance.random())

    async def _stay(self, guest: Guest) -> None:
        for _ in range(self.chance.randint(1, 12)):
            self._note(await guest.do())
            if self._is_over:
                break
            await anyio.sleep(0.1 * self.chance.random())
        self._note(await guest.leave())

    def _note(self, how: str) -> None:
        self.ended[how] += 1


def _start(tasks: TaskGroup, visit: Callable[[], Coroutine[Any, Any, None]], hands: int) -> None:
    for _ in range(hands):
        tasks.start_soon(visit)


def library() -> App:
    """The application, with a call that is over soon where nobody takes it back: its client may be gone."""
    app = asking()

    @app.tool(timeout=20)
    async def linger(ctx: Context) -> str:
        """Do nothing for a while."""
        await ctx.progress(1)
        await anyio.sleep(LINGERS)
        return "lingered"

    return app


async def soak(seconds: float, seed: int, *, pace: float = 1.0, hands: int = 24) -> soaking.Findings[Holdings]:
    """Let a crowd come and go, and look what is left; what is wrong is counted among what ended.

    Args:
        seconds: how long.
        seed: decides what happens.
        pace: how many times as often something dies as in the long form.
        hands: how many clients there are at once.
    """
    with soaking.small_heap():
        async with LocalFleet(library(), edges=EDGES, environment=ENVIRONMENT, nats=True) as fleet:
            crowd = Crowd(fleet, random.Random(seed), pace)

            async def now() -> Holdings:
                return await Holdings.now(fleet)

            async def settled(before: Holdings | None) -> Holdings:
                """Return what is held once nobody is there and the dead are forgotten."""
                for hints in alive(UriHints):  # a replica hears them from its first grant on, whenever that comes
                    if hints._bus.is_up:
                        await hints.begin()
                if before is not None:
                    return await soaking.settle(now, lambda held: held == before, within=SETTLED_WITHIN)
                await soaking.settle(now, lambda held: held.is_idle, within=SETTLED_WITHIN)
                return await soaking.steady(now, within=SETTLED_WITHIN)

            found = await soaking.soaked(
                partial(crowd.run, hands=hands), settled, crowd.ended, seconds=seconds, warm=2.0
            )
            for mistake in MISTAKES:
                if lines := fleet.lines(mistake):
                    crowd.ended[f"{WRONG}{mistake}: {lines[0]}"] += len(lines)
            return found


if __name__ == "__main__":
    soaking.main(__doc__, soak, minutes=60.0)
