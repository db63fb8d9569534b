"""Hears the stats of all processes while a page is open, and draws the overview that pages show."""

from __future__ import annotations

import json
import time
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.port import Incoming
from mcpfleet.console.nodes import Nodes
from mcpfleet.console.overview import overview
from mcpfleet.contracts.stats import ALL_SUBJECTS, MOST_BYTES, Sender, Stats, sender_of
from mcpfleet.process.logs import reporting

MOST_WATCHERS: Final = 16
"""Pages that may be open at once; one more is told to come later."""
_RETRY: Final = 1.0
"""Seconds after which hearing starts again after a failure."""
_FRESH: Final = 0.9
"""Seconds for which one overview serves all pages."""


class ConsoleFeed:
    """Hears stats while pages are open, and draws the overview that they show."""

    def __init__(self, bus: Bus, own: Sender, *, jaeger: str, log: FilteringBoundLogger) -> None:
        """Describe a feed that hears nothing yet.

        Args:
            bus: the bus of the process.
            own: this process, whose stats need no bus.
            jaeger: the address of Jaeger's page; empty for none.
            log: tells of failures.
        """
        self._log = log
        self._hearing: Subscription | None = None
        self._bus = bus
        self._own = own
        self._jaeger = jaeger
        self._nodes = Nodes()
        self._watchers = 0
        self.over = anyio.Event()
        """Set when hearing has ended, since the process ends."""
        self._changed = anyio.Event()
        self._drawn = b""
        self._drawn_at = 0.0

    async def run(self) -> None:
        """Hear while pages are open, until cancelled. One task subscribes and leaves, so that neither overtakes the
        other."""
        try:
            while True:
                with reporting(self._log, "console"):
                    await self._hear()
                await anyio.sleep(_RETRY)
        finally:
            self.over.set()

    async def _hear(self) -> None:
        """Hear while pages are open; runs until something fails."""
        while True:
            if self._watchers and self._hearing is None:
                self._hearing = await self._bus.subscribe(ALL_SUBJECTS, self._on_message)
            elif not self._watchers and self._hearing is not None:
                hearing, self._hearing = self._hearing, None
                await self._bus.leave(hearing)
                self._nodes.clear()
            else:
                self._changed = anyio.Event()
                await self._changed.wait()

    def enter(self) -> bool:
        """Count a page, until `leave`; return False if there are too many, or the feed is over."""
        if self._watchers >= MOST_WATCHERS or self.over.is_set():
            return False
        self._watchers += 1
        self._changed.set()
        return True

    def leave(self) -> None:
        """Undo `enter`."""
        self._watchers -= 1
        self._changed.set()

    def hear_own(self, stats: Stats) -> None:
        """Take this process's own stats, which are shown even without a link to NATS."""
        if self._watchers:
            self._nodes.hear(self._own, stats, time.monotonic())

    def _on_message(self, message: Incoming) -> None:
        """Take stats in, if they are short, well-formed, and not too frequent."""
        who, now = sender_of(message.subject), time.monotonic()
        if who is None or who == self._own or len(message.body) > MOST_BYTES or not self._nodes.wants(who, now):
            return
        try:
            stats = Stats.model_validate_json(message.body)
        except ValidationError:  # from an unknown release, or from a worker that is taken over
            return
        self._nodes.hear(who, stats, now)

    def drawn(self) -> bytes:
        """Return the overview now, as one line of JSON."""
        now = time.monotonic()
        if not self._drawn or now - self._drawn_at > _FRESH:
            drawn = overview(self._nodes.nodes(now), now, jaeger=self._jaeger, unshown=self._nodes.unshown)
            self._drawn, self._drawn_at = json.dumps(drawn).encode(), now
        return self._drawn
