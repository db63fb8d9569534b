"""States to each pool which of its URIs this edge's streams watch: the pool's application watches their sources."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

import anyio
import anyio.lowlevel
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.subscriptions import statements, watched_subject
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.edge.streams.uri_permits import UriPermit
from mcpfleet.process.logs import reporting

_PAUSE: Final = 1.0
"""Seconds between two statements, for each of a set's parts: what many URIs cost has a bound as well."""
_TURN: Final = 256
"""URIs that are looked at in one turn of the event loop."""
Key = tuple[str, str]
"""An endpoint, and a URI that is watched there."""


class WatchReporter:
    """Knows the pool of each watched URI, and says what has changed."""

    def __init__(
        self,
        bus: Bus,
        watched: Callable[[], Mapping[Key, Mapping[Stream, UriPermit]]],
        pool_of: Callable[[str, Mapping[Stream, UriPermit]], str | None],
        *,
        interval: float,
        log: FilteringBoundLogger,
    ) -> None:
        """State nothing yet.

        Args:
            bus: the edge's.
            watched: the URIs that are watched now, each with those who watch it.
            pool_of: says which pool serves a URI to one of these watchers; none where it is there for none of them.
            interval: seconds after which all is stated again.
            log: for what an operator should know.
        """
        self._bus = bus
        self._watched = watched
        self._pool_of = pool_of
        self._interval = interval
        self._log = log
        self._numbers = count(1)
        self._pools: dict[Key, str] = {}
        self._stated: dict[str, frozenset[str]] = {}
        """What each pool was told last."""
        self._looked_at = -interval
        self._has_changed = anyio.Event()
        self._is_stale = True
        """Other pools may serve the URIs than before."""

    def joined(self, key: Key) -> None:
        """Hear that one more watches a URI; nothing is new where others do for whom it is there."""
        if key not in self._pools:
            self._has_changed.set()

    def left(self) -> None:
        """Hear that nobody watches some URI any more."""
        self._has_changed.set()

    def catalog_changed(self) -> None:
        """Hear that an endpoint offers something else."""
        self._is_stale = True
        self._has_changed.set()

    async def run(self) -> None:
        """State what changes, until cancelled."""
        while True:
            with anyio.move_on_after(self._interval * random.uniform(0.75, 1)):  # noqa: S311  # no secret
                await self._has_changed.wait()
            self._has_changed = anyio.Event()
            is_time = time.monotonic() - self._looked_at >= self._interval * 0.75
            if is_time or self._is_stale:
                self._is_stale = False
                self._pools.clear()
            told = 0
            with reporting(self._log, "what is watched"):
                await self._look()
                told = self._state(again=is_time)
            await anyio.sleep(_PAUSE * max(1, told))

    async def _look(self) -> None:
        """Find the pools of the URIs that have none yet, and forget those that nobody watches."""
        watched = self._watched()
        self._pools = {key: pool for key, pool in self._pools.items() if key in watched}
        for number, key in enumerate([key for key in watched if key not in self._pools], 1):
            watchers = watched.get(key)
            pool = self._pool_of(key[1], watchers) if watchers else None
            if pool is not None:
                self._pools[key] = pool
            if number % _TURN == 0:
                await anyio.lowlevel.checkpoint()

    def _state(self, *, again: bool) -> int:
        """Tell the pools whose sets are others than before, or all of them; returns the messages that it took."""
        sets: dict[str, set[str]] = {pool: set() for pool in self._stated}
        for (_, uri), pool in self._pools.items():
            sets.setdefault(pool, set()).add(uri)
        told = 0
        for pool, uris in sets.items():
            whole = frozenset(uris)
            if again or self._stated.get(pool) != whole:
                told += self._tell(pool, whole)
        if again:
            self._looked_at = time.monotonic()
        return told

    def _tell(self, pool: str, uris: frozenset[str]) -> int:
        messages = statements(self._bus.process, next(self._numbers), uris)
        try:
            for message in messages:
                self._bus.publish(watched_subject(pool), message.model_dump_json().encode())
        except BusError as error:  # the next statement makes good for it
            self._log.debug("what is watched was not stated", pool=pool, error=str(error))
            self._stated[pool] = frozenset()
            return len(messages)
        if uris:
            self._stated[pool] = uris
        else:
            self._stated.pop(pool, None)
        return len(messages)
