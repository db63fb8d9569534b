"""Hears the stats of all processes, keeps the last 15 minutes, and draws what pages show of them."""

from __future__ import annotations

import json
import math
import time
from typing import Any, Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.port import Incoming
from mcpfleet.console.history import POINTS, STEP, History
from mcpfleet.console.nodes import Nodes
from mcpfleet.console.overview import overview
from mcpfleet.console.own_views import View, own_view
from mcpfleet.contracts.stats import ALL_SUBJECTS, MOST_BYTES, Sender, Stats, sender_of
from mcpfleet.process.logs import reporting

MOST_WATCHERS: Final = 16
"""Pages that may be open at once; one more is told to come later."""
MOST_UNWATCHED: Final = 64
"""Processes of a fleet that is heard while no page is open. Each process with a console hears each other one, so in a
larger fleet that would be too much traffic for nobody."""
KEPT: Final = STEP * POINTS
"""Seconds for which a larger fleet is still heard after its last page was closed."""
TIDY: Final = 10.0
"""Seconds after which processes that are gone are dropped."""
_RETRY: Final = 1.0
"""Seconds after which hearing starts again after a failure."""
_FRESH: Final = 0.9
"""Seconds for which one drawing serves all pages."""


class ConsoleFeed:
    """Hears stats, and draws the overview and the views of single processes and tools."""

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
        self._history = History()
        self._watchers = 0
        self._left = -math.inf
        """When the last page was closed (monotonic)."""
        self._is_large = False
        self.over = anyio.Event()
        """Set when hearing has ended, since the process ends."""
        self._changed = anyio.Event()
        self._drawn: dict[View | None, tuple[float, bytes]] = {}

    async def run(self) -> None:
        """Hear until cancelled. One task subscribes and leaves, so that neither overtakes the other."""
        try:
            while True:
                with reporting(self._log, "console"):
                    await self._hear()
                await anyio.sleep(_RETRY)
        finally:
            self.over.set()

    async def _hear(self) -> None:
        """Hear a fleet that is small, or watched; runs until something fails."""
        while True:
            if self._wants() and self._hearing is None:
                self._hearing = await self._bus.subscribe(ALL_SUBJECTS, self._on_message)
            elif not self._wants() and self._hearing is not None:
                hearing, self._hearing = self._hearing, None
                await self._bus.leave(hearing)
                self._nodes, self._history = Nodes(), History()
            else:
                self._changed = anyio.Event()
                with anyio.move_on_after(TIDY):
                    await self._changed.wait()
                self._tidy()

    def _wants(self) -> bool:
        return bool(self._watchers) or not self._is_large or time.monotonic() - self._left < KEPT

    def _tidy(self) -> None:
        now = time.monotonic()
        there = self._nodes.nodes(now)
        self._history.keep([node.sender for node in there])
        self._is_large = self._is_large or len(there) > MOST_UNWATCHED

    def enter(self) -> bool:
        """Count a page, until `leave`; return False if there are too many, or the feed is over."""
        if self._watchers >= MOST_WATCHERS or self.over.is_set():
            return False
        self._watchers += 1
        self._is_large = False
        self._changed.set()
        return True

    def leave(self) -> None:
        """Undo `enter`."""
        self._watchers -= 1
        self._left = time.monotonic()
        self._changed.set()

    def hear_own(self, stats: Stats) -> None:
        """Take this process's own stats, which are shown even without a link to NATS."""
        if self._wants():
            self._take(self._own, stats, time.monotonic())

    def _on_message(self, message: Incoming) -> None:
        """Take stats in, if they are short, well-formed, and not too frequent."""
        who, now = sender_of(message.subject), time.monotonic()
        if who is None or who == self._own or len(message.body) > MOST_BYTES or not self._nodes.wants(who, now):
            return
        try:
            stats = Stats.model_validate_json(message.body)
        except ValidationError:  # from an unknown release, or from a worker that is taken over
            return
        self._take(who, stats, now)

    def _take(self, who: Sender, stats: Stats, now: float) -> None:
        self._history.hear(who, stats, self._nodes.last_heard(who), now)
        self._nodes.hear(who, stats, now)

    def drawn(self, view: View | None = None) -> bytes:
        """Return a view now, as one line of JSON; None is the overview."""
        now = time.monotonic()
        self._drawn = {each: kept for each, kept in self._drawn.items() if now - kept[0] <= _FRESH}
        if view not in self._drawn:
            self._drawn[view] = now, json.dumps(self._draw(view, now)).encode()
        return self._drawn[view][1]

    def _draw(self, view: View | None, now: float) -> dict[str, Any]:
        nodes = self._nodes.nodes(now)
        if view is not None:
            return own_view(view, nodes, self._history, now, jaeger=self._jaeger)
        return overview(nodes, self._history, now, jaeger=self._jaeger, unshown=self._nodes.unshown)
