"""What the fleet's edges watch of a pool's resources, and the application's functions that are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.app import App
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.subscriptions import Watched, watched_subject
from mcpfleet.worker.loop_bridge import LoopBridge

_NOBODY: Final[frozenset[str]] = frozenset()
_LOOKS: Final = 10
"""How often within an edge's time is looked whether it is over."""
_SETTLES: Final = 0.05
"""Seconds in which what several edges say becomes one set."""


@dataclass(slots=True)
class _Stated:
    heard: float
    """When (monotonic)."""
    number: int = -1
    uris: frozenset[str] = _NOBODY
    coming: int = -1
    """The set of which parts are there."""
    parts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    size: int = 0
    """Characters of its URIs."""
    coming_size: int = 0


class Sets:
    """The sets of the edges that were heard lately, and their union."""

    def __init__(self, *, lasts: float, room: int) -> None:
        """Know no edge yet.

        Args:
            lasts: seconds for which an edge's set holds.
            room: characters of all edges' URIs; what goes beyond is not taken.
        """
        self._lasts = lasts
        self._room = room
        self._edges: dict[str, _Stated] = {}

    def hear(self, message: Watched, now: float) -> bool:
        """Take a part of an edge's set; returns false where there is no room for it.

        An edge has a new number after each statement, so one that comes late changes nothing.
        """
        stated = self._edges.get(message.edge) or _Stated(now)
        if message.number < max(stated.number, stated.coming):
            return True
        if message.number != stated.coming:
            stated.coming, stated.coming_size, stated.parts = message.number, 0, {}
        size = sum(map(len, message.uris))
        others = sum(each.size + each.coming_size for each in self._edges.values() if each is not stated)
        if others + stated.coming_size + size > self._room:
            return False
        self._edges[message.edge] = stated
        stated.heard = now
        stated.coming_size += size if message.part not in stated.parts else 0
        stated.parts[message.part] = message.uris
        if len(stated.parts) == message.parts:
            stated.number, stated.size = message.number, stated.coming_size
            stated.uris = _NOBODY.union(*stated.parts.values())
            stated.coming_size, stated.parts = 0, {}
        return True

    def forget_silent(self, now: float) -> bool:
        """Forget the edges that were not heard for too long, which died or left; returns whether there were any."""
        silent = [edge for edge, stated in self._edges.items() if now - stated.heard >= self._lasts]
        for edge in silent:
            del self._edges[edge]
        return bool(silent)

    def spare(self, now: float) -> None:
        """Let no silence until now count: nobody could be heard."""
        for stated in self._edges.values():
            stated.heard = now

    def union(self) -> frozenset[str]:
        """What any edge watches."""
        return _NOBODY.union(*[stated.uris for stated in self._edges.values()])


class Telling:
    """Tells the application's functions, on the handlers' loop, one set after the other."""

    def __init__(self, app: App, threads: int, log: FilteringBoundLogger) -> None:
        self._app = app
        self._threads = threads
        self._log = log
        self._newest = _NOBODY
        self._crossing: LoopBridge[frozenset[str]] | None = None
        self._has_news = anyio.Event()

    def tell(self, uris: frozenset[str]) -> None:
        """Have the functions told of a set, once `run` has begun; on any thread. Of several the last counts."""
        if self._crossing is not None:
            self._crossing.put(uris)

    def _hear(self, uris: frozenset[str]) -> None:
        self._newest = uris
        self._has_news.set()

    async def run(self) -> None:
        """Tell, until cancelled; runs on the handlers' loop."""
        self._crossing = LoopBridge(asyncio.get_running_loop(), self._hear)
        threads = anyio.CapacityLimiter(self._threads)
        while True:
            await self._has_news.wait()
            self._has_news = anyio.Event()
            for function in self._app.watchers:
                try:
                    await function.tell(self._newest, threads)
                except Exception:
                    self._log.exception("an application could not follow what is watched", function=function.name)


class WatchedActor:
    """Hears the edges, where the application wants to know."""

    def __init__(
        self, bus: Bus, pool: str, tell: Callable[[frozenset[str]], None], sets: Sets, *, lasts: float,
        log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        """Hear nothing yet.

        Args:
            bus: the worker's.
            pool: whose URIs are told.
            tell: hears each new union.
            sets: of the edges.
            lasts: seconds for which an edge's set holds.
            log: for what an operator should know.
        """
        self._bus = bus
        self._pool = pool
        self._tell = tell
        self._sets = sets
        self._lasts = lasts
        self._log = log
        self._told = _NOBODY
        self._has_news = anyio.Event()

    async def run(self) -> None:
        """Hear the edges, and forget those that are silent, until cancelled."""
        self._bus.on_link(self._on_link)
        await self._bus.subscribe(watched_subject(self._pool), self._hear)
        while True:
            with anyio.move_on_after(self._lasts / _LOOKS):
                await self._has_news.wait()
                await anyio.sleep(_SETTLES)
            has_news = self._has_news.is_set()
            self._has_news = anyio.Event()
            is_other = self._bus.is_up and self._sets.forget_silent(time.monotonic())
            if has_news or is_other:
                self._say()

    def _on_link(self, is_up: bool) -> None:
        """Count no silence in which nobody could be heard (D13)."""
        if is_up:
            self._sets.spare(time.monotonic())

    def _hear(self, message: Incoming) -> None:
        try:
            stated = Watched.model_validate_json(message.body)
        except ValidationError as error:
            self._log.warning("what is watched cannot be read", error=str(error))
            return
        if not self._sets.hear(stated, time.monotonic()):
            self._log.warning("too much is watched (MCPFLEET_WATCHED_ROOM)", edge=stated.edge)
        self._has_news.set()

    def _say(self) -> None:
        union = self._sets.union()
        if union != self._told:
            self._told = union
            self._tell(union)
