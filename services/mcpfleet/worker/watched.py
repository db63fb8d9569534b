"""The resources of a pool that edges watch, told to the application's watcher functions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.subscriptions import Watched, watched_subject
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.served import ServedApp

_NOTHING: Final[frozenset[str]] = frozenset()
_LOOKS: Final = 10
"""Looks for silent edges within the time for which a set holds."""
_SETTLES: Final = 0.05
"""Seconds in which the reports of several edges become one set."""


@dataclass(slots=True)
class _Reported:
    """The set that one edge has reported, and the parts of its next one."""

    heard: float
    """When (monotonic)."""
    number: int = -1
    uris: frozenset[str] = _NOTHING
    size: int = 0
    """Characters of its URIs."""
    coming: int = -1
    """The number of the next set, whose parts are arriving."""
    parts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    coming_size: int = 0
    """Characters of the URIs in those parts."""


class WatchedSets:
    """The sets of the edges that were heard lately, and their union."""

    def __init__(self, *, lasts: float, most: int) -> None:
        """Know no edge yet.

        Args:
            lasts: seconds for which an edge's set holds.
            most: characters of all edges' URIs; a set beyond that is not taken.
        """
        self._lasts = lasts
        self._most = most
        self._edges: dict[str, _Reported] = {}

    def hear(self, message: Watched, now: float) -> bool:
        """Take a part of an edge's set; returns False if all sets together would be too large.

        An edge numbers its reports, so a late one changes nothing.
        """
        reported = self._edges.get(message.edge) or _Reported(now)
        if message.number < max(reported.number, reported.coming):
            return True
        if message.number != reported.coming:
            reported.coming, reported.coming_size, reported.parts = message.number, 0, {}
        size = sum(map(len, message.uris))
        others = sum(each.size + each.coming_size for each in self._edges.values() if each is not reported)
        if others + reported.coming_size + size > self._most:
            return False
        self._edges[message.edge] = reported
        reported.heard = now
        reported.coming_size += size if message.part not in reported.parts else 0
        reported.parts[message.part] = message.uris
        if len(reported.parts) == message.parts:
            reported.number, reported.size = message.number, reported.coming_size
            reported.uris = _NOTHING.union(*reported.parts.values())
            reported.coming_size, reported.parts = 0, {}
        return True

    def forget_silent(self, now: float) -> bool:
        """Forget the edges that were silent for too long: they died or left. Returns whether there were any."""
        silent = [edge for edge, reported in self._edges.items() if now - reported.heard >= self._lasts]
        for edge in silent:
            del self._edges[edge]
        return bool(silent)

    def spare(self, now: float) -> None:
        """Count no silence until now: nobody could be heard."""
        for reported in self._edges.values():
            reported.heard = now

    def union(self) -> frozenset[str]:
        """All URIs that any edge watches."""
        return _NOTHING.union(*[reported.uris for reported in self._edges.values()])


class WatcherCalls:
    """Calls the application's watcher functions on the handlers' loop, with one set after the other."""

    def __init__(self, app: ServedApp, threads: int, log: FilteringBoundLogger) -> None:
        self._app = app
        self._threads = threads
        self._log = log
        self._newest = _NOTHING
        self._bridge: LoopBridge[frozenset[str]] | None = None
        self._has_news = AutoResetEvent()

    def tell(self, uris: frozenset[str]) -> None:
        """Have the functions called with a set, once `run` has begun; on any thread. The newest set counts."""
        if self._bridge is not None:
            self._bridge.put(uris)

    def _hear(self, uris: frozenset[str]) -> None:
        self._newest = uris
        self._has_news.set()

    async def run(self) -> None:
        """Call the functions until cancelled; runs on the handlers' loop."""
        self._bridge = LoopBridge(asyncio.get_running_loop(), self._hear)
        threads = anyio.CapacityLimiter(self._threads)
        while True:
            await self._has_news.wait()
            for function in self._app.watchers:
                try:
                    await function.tell(self._newest, threads)
                except Exception:
                    self._log.exception("watcher failed", function=function.name)


class WatchedActor:
    """Hears which URIs each edge watches, if the application wants to know."""

    def __init__(self, side: BusSide, tell: Callable[[frozenset[str]], None]) -> None:
        """Hear nothing yet.

        Args:
            side: the worker on its bus.
            tell: hears each new union of the edges' sets.
        """
        self._bus = side.bus
        self._pool = side.pool
        self._lasts = side.settings.watched_lasts
        self._log = side.log
        self._tell = tell
        self._sets = WatchedSets(lasts=self._lasts, most=side.settings.watched_room)
        self._told = _NOTHING
        self._has_news = AutoResetEvent()

    async def run(self) -> None:
        """Hear the edges, and forget those that are silent, until cancelled."""
        self._bus.on_link(self._on_link)
        await self._bus.subscribe(watched_subject(self._pool), self._hear)
        while True:
            has_news = await self._has_news.wait(self._lasts / _LOOKS)
            if has_news:
                await anyio.sleep(_SETTLES)
                self._has_news.clear()
            is_other = self._bus.is_up and self._sets.forget_silent(time.monotonic())
            if has_news or is_other:
                self._say()

    def _on_link(self, is_up: bool) -> None:
        """Count no silence while nobody could be heard (D13)."""
        if is_up:
            self._sets.spare(time.monotonic())

    def _hear(self, message: Incoming) -> None:
        try:
            reported = Watched.model_validate_json(message.body)
        except ValidationError as error:
            self._log.warning("malformed watch report", error=str(error))
            return
        if not self._sets.hear(reported, time.monotonic()):
            self._log.warning("watched URIs not kept", edge=reported.edge, setting="MCPFLEET_WATCHED_ROOM")
        self._has_news.set()

    def _say(self) -> None:
        union = self._sets.union()
        if union != self._told:
            self._told = union
            self._tell(union)
