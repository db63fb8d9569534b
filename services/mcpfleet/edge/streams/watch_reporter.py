"""Reports to each pool which of its URIs this edge's streams watch, so that its application watches their sources."""

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
from mcpfleet.contracts.subscriptions import watch_report, watched_subject
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.edge.streams.uri_permit import UriPermit
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.logs import reporting

_PAUSE: Final = 1.0
"""Seconds between two reports, for each message of the last one, so that many URIs have a bounded cost."""
_TURN: Final = 256
"""URIs that are looked up in one turn of the event loop."""

Key = tuple[str, str]
"""An endpoint, and a URI that is watched there."""


class WatchReporter:
    """Knows the pool of each watched URI, and reports what has changed."""

    def __init__(
        self,
        bus: Bus,
        watched: Callable[[], Mapping[Key, Mapping[Stream, UriPermit]]],
        pool_of: Callable[[str, Mapping[Stream, UriPermit]], str | None],
        *,
        interval: float,
        log: FilteringBoundLogger,
    ) -> None:
        """Begin without reports.

        Args:
            bus: the edge's.
            watched: returns the URIs that are watched now, each with its watchers.
            pool_of: returns the pool that serves a URI to one of these watchers; None where no pool does.
            interval: seconds after which all URIs are reported again.
            log: names reports that were not sent.
        """
        self._bus = bus
        self._watched = watched
        self._pool_of = pool_of
        self._interval = interval
        self._log = log
        self._numbers = count(1)
        self._pools: dict[Key, str] = {}
        self._reported: dict[str, frozenset[str]] = {}
        """By pools, the URIs of the last report."""
        self._reported_at = -interval
        self._has_changed = AutoResetEvent()
        self._is_stale = True
        """Other pools than before may serve the URIs."""

    def note_watched(self, key: Key) -> None:
        """Note one more watcher of a URI, which changes nothing where the URI's pool is known."""
        if key not in self._pools:
            self._has_changed.set()

    def note_unwatched(self) -> None:
        """Note that a URI has lost its last watcher."""
        self._has_changed.set()

    def catalog_changed(self) -> None:
        """Note a new snapshot of an endpoint."""
        self._is_stale = True
        self._has_changed.set()

    async def run(self) -> None:
        """Report changes, until cancelled."""
        while True:
            await self._has_changed.wait(self._interval * random.uniform(0.75, 1))  # noqa: S311  # no secret
            is_time = time.monotonic() - self._reported_at >= self._interval * 0.75
            if is_time or self._is_stale:
                self._is_stale = False
                self._pools.clear()
            sent = 0
            with reporting(self._log, "watch report"):
                await self._find_pools()
                sent = self._report(again=is_time)
            await anyio.sleep(_PAUSE * max(1, sent))

    async def _find_pools(self) -> None:
        """Find the pools of the URIs that have none yet, and remove URIs that nobody watches."""
        watched = self._watched()
        self._pools = {key: pool for key, pool in self._pools.items() if key in watched}
        for number, key in enumerate([key for key in watched if key not in self._pools], 1):
            watchers = watched.get(key)
            pool = self._pool_of(key[1], watchers) if watchers else None
            if pool is not None:
                self._pools[key] = pool
            if number % _TURN == 0:
                await anyio.lowlevel.checkpoint()

    def _report(self, *, again: bool) -> int:
        """Report to the pools whose URIs have changed, or to all pools; return the number of messages."""
        sets: dict[str, set[str]] = {pool: set() for pool in self._reported}
        for (_, uri), pool in self._pools.items():
            sets.setdefault(pool, set()).add(uri)
        sent = 0
        for pool, uris in sets.items():
            whole = frozenset(uris)
            if again or self._reported.get(pool) != whole:
                sent += self._send(pool, whole)
        if again:
            self._reported_at = time.monotonic()
        return sent

    def _send(self, pool: str, uris: frozenset[str]) -> int:
        messages = watch_report(self._bus.process, next(self._numbers), uris)
        try:
            for message in messages:
                self._bus.publish(watched_subject(pool), message.model_dump_json().encode())
        except BusError as error:  # the next report makes up for it
            self._log.debug("watch report not sent", pool=pool, error=str(error))
            self._reported[pool] = frozenset()
            return len(messages)
        if uris:
            self._reported[pool] = uris
        else:
            self._reported.pop(pool, None)
        return len(messages)
